// The part of the trace that is on the screen. Knows the width of the screen in pixels, but no DOM.

export interface Viewport {
  readonly start_us: number;
  readonly end_us: number;
}

/** A view shorter than 100 ns shows nothing new: timestamps are whole nanoseconds. */
const SHORTEST_US = 0.1;

export function span(view: Viewport): number {
  return view.end_us - view.start_us;
}

export function toPixel(view: Viewport, us: number, width_px: number): number {
  return ((us - view.start_us) / span(view)) * width_px;
}

export function toTime(view: Viewport, pixel: number, width_px: number): number {
  return view.start_us + (pixel / width_px) * span(view);
}

/** The nearest view that lies within `bounds` and is neither empty nor longer than them. */
export function clamp(view: Viewport, bounds: Viewport): Viewport {
  const whole = Math.max(span(bounds), SHORTEST_US);
  const wanted = span(view);
  const length = Number.isFinite(wanted) ? Math.min(Math.max(wanted, SHORTEST_US), whole) : whole;
  const middle = (view.start_us + view.end_us) / 2;
  const start = Number.isFinite(middle) ? middle - length / 2 : bounds.start_us;
  const start_us = Math.min(Math.max(start, bounds.start_us), bounds.start_us + whole - length);
  return { start_us, end_us: start_us + length };
}

/** `factor` below 1 zooms in; the moment `at_us` stays where it is on the screen. */
export function zoom(view: Viewport, factor: number, at_us: number, bounds: Viewport): Viewport {
  const length = Math.min(Math.max(span(view) * factor, SHORTEST_US), Math.max(span(bounds), SHORTEST_US));
  const left = (at_us - view.start_us) / span(view);
  const start_us = at_us - left * length;
  return clamp({ start_us, end_us: start_us + length }, bounds);
}

export function pan(view: Viewport, by_us: number, bounds: Viewport): Viewport {
  return clamp({ start_us: view.start_us + by_us, end_us: view.end_us + by_us }, bounds);
}

const AIR = 0.25;

/** A kernel alone tells little: going to the place of a table row shows this much before and after it. */
export const AROUND_US = 20;

/** `range` with air on both sides, at least `least_us`, so that what comes before and after is seen. */
export function aired(range: Viewport, least_us = SHORTEST_US): Viewport {
  const margin = Math.max(span(range) * AIR, least_us);
  return { start_us: range.start_us - margin, end_us: range.end_us + margin };
}

/** The server rounds to whole nanoseconds. */
const ROUNDING_US = 0.002;

export function covers(outer: Viewport, inner: Viewport): boolean {
  return outer.start_us <= inner.start_us + ROUNDING_US && outer.end_us >= inner.end_us - ROUNDING_US;
}
