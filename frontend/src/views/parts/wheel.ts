// What the wheel does to a view of the recording.

import { pan, span, toTime, zoom, type Viewport } from "../../base/viewport";

/** Zoom per unit of the wheel. A notch is usually 100 units. */
const WHEEL_ZOOM = 0.0016;
const LINE_PX = 30;

export type Turn = Pick<WheelEvent, "deltaX" | "deltaY" | "deltaMode" | "shiftKey">;

/** What is seen of the recording, on a canvas of this width. */
export interface Sight {
  readonly view: Viewport;
  readonly bounds: Viewport;
  readonly width: number;
}

/** How far the wheel turns sideways; null if it turns up or down. With Shift, every wheel turns sideways. */
export function sideways({ deltaX, deltaY, shiftKey }: Turn): number | null {
  if (shiftKey) return deltaX + deltaY;
  return Math.abs(deltaX) > Math.abs(deltaY) ? deltaX : null;
}

/** Return the view after the wheel turned: panned, or zoomed at `x` pixels from the left. */
export function wheeled(turn: Turn, x: number, { view, bounds, width }: Sight): Viewport {
  const unit = turn.deltaMode === WheelEvent.DOM_DELTA_LINE ? LINE_PX : 1;
  const across = sideways(turn);
  if (across !== null) return pan(view, ((across * unit) / width) * span(view), bounds);
  return zoom(view, Math.exp(turn.deltaY * unit * WHEEL_ZOOM), toTime(view, x, width), bounds);
}

/**
 * Return whether the wheel scrolls instead of zooming: with the whole recording in view, nothing is left to zoom out.
 * `scrolled` is how far the lanes are scrolled, 0 without lanes.
 */
export function scrolls(turn: Turn, { view, bounds }: Omit<Sight, "width">, scrolled: number): boolean {
  if (sideways(turn) !== null || span(view) < span(bounds)) return false;
  return turn.deltaY > 0 || scrolled > 0;
}
