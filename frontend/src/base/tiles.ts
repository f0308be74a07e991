// Which slice of the timeline to ask the server for, so that panning and a little zooming need no new one.

import { clamp, span, type Viewport } from "./viewport";

/** A slice is at most this many pixels wide, which bounds what is fetched and drawn. */
const WIDEST_PX = 4096;

/** Widths are rounded up to these, so that a resized window needs no new slices. */
const WIDTH_STEP_PX = 512;

/** A slice is at least this many times as long as the view that it is for, and at most twice that. */
const AIR = 1.5;

/**
 * The slice that holds `view` with air on both sides, or null where that would be the whole trace. Slices lie on a
 * grid of powers of two, so that views near each other share one, and the browser has it already.
 */
export function tileFor(view: Viewport, bounds: Viewport): Viewport | null {
  const length = 2 ** Math.ceil(Math.log2(span(view) * AIR));
  if (length >= span(bounds)) return null;
  const grid = length / 4;
  const air = (length - span(view)) / 2;
  const start_us = bounds.start_us + Math.round((view.start_us - air - bounds.start_us) / grid) * grid;
  return clamp({ start_us, end_us: start_us + length }, bounds);
}

/** How many pixels wide a slice is for a view of `width_px`: boxes closer than one pixel are merged by the server. */
export function tileWidth(width_px: number): number {
  const finest = width_px * 2 * AIR;
  return Math.min(WIDEST_PX, Math.ceil(finest / WIDTH_STEP_PX) * WIDTH_STEP_PX);
}
