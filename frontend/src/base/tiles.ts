// Which slice of the timeline to ask the server for, so that panning and a little zooming need no new one.

import { clamp, span, type Viewport } from "./viewport";

export interface Tile extends Viewport {
  /** How many pixels wide the slice is: boxes closer than one pixel are merged by the server. */
  readonly width_px: number;
}

/** A slice is at most this many pixels wide, which bounds what is fetched and drawn. */
const WIDEST_PX = 4096;

/** Widths are rounded up to these, so that a resized window needs no new slices. */
const WIDTH_STEP_PX = 512;

/**
 * The slice that holds `view` with air on both sides. Slices lie on a grid of powers of two, so that views near each
 * other share one, and the browser has it already.
 */
export function tileFor(view: Viewport, bounds: Viewport, width_px: number): Tile {
  const whole = span(bounds);
  const length = 2 ** Math.ceil(Math.log2(span(view) * 1.5));
  if (length >= whole) return { ...bounds, width_px: roundUp(width_px * 1.5) };
  const grid = length / 4;
  const air = (length - span(view)) / 2;
  const start_us = bounds.start_us + Math.round((view.start_us - air - bounds.start_us) / grid) * grid;
  const tile = clamp({ start_us, end_us: start_us + length }, bounds);
  // A slice is between one and a half and three times as long as the views that use it.
  return { ...tile, width_px: roundUp(width_px * 3) };
}

function roundUp(width_px: number): number {
  return Math.min(WIDEST_PX, Math.ceil(width_px / WIDTH_STEP_PX) * WIDTH_STEP_PX);
}
