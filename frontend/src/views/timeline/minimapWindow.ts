// The window on the minimap: what of it the pointer grips, and the view after dragging that.

import { clamp, pan, span, toPixel, toTime, type Viewport } from "../../base/viewport";

/** What the pointer holds: an edge of the window, all of it, or a corner of a new one. */
export type Grip = "start" | "end" | "window" | "new";

export interface WindowDrag {
  readonly grip: Grip;
  /** Where the drag began, and the view then. */
  readonly x: number;
  readonly view: Viewport;
}

/** An edge of the window can be missed by this much. */
const EDGE_PX = 6;

/** Return what the pointer grips at `x`. A window around everything cannot be moved, so a new one is drawn in it. */
export function gripAt(x: number, view: Viewport, bounds: Viewport, width: number): Grip {
  if (span(view) >= span(bounds)) return "new";
  const left = toPixel(bounds, view.start_us, width);
  const right = toPixel(bounds, view.end_us, width);
  if (Math.abs(x - left) < EDGE_PX) return "start";
  if (Math.abs(x - right) < EDGE_PX) return "end";
  return x > left && x < right ? "window" : "new";
}

/** Return the view after dragging to `x`; null for an empty one. */
export function draggedTo(
  x: number,
  { grip, x: from, view }: WindowDrag,
  bounds: Viewport,
  width: number,
): Viewport | null {
  if (grip === "window") return pan(view, ((x - from) / width) * span(bounds), bounds);
  const fixed = { start: view.end_us, end: view.start_us, new: toTime(bounds, from, width) }[grip];
  const at = toTime(bounds, Math.min(Math.max(x, 0), width), width);
  return at === fixed ? null : clamp({ start_us: Math.min(at, fixed), end_us: Math.max(at, fixed) }, bounds);
}

/** Return the view with its middle at `x`, as far as the recording goes. */
export function centeredAt(x: number, view: Viewport, bounds: Viewport, width: number): Viewport {
  const half = span(view) / 2;
  const at = toTime(bounds, x, width);
  return clamp({ start_us: at - half, end_us: at + half }, bounds);
}

/** How far a key moves the window, in lengths of the window. */
const BY_KEY: Readonly<Partial<Record<string, number>>> = {
  ArrowLeft: -0.25,
  ArrowRight: 0.25,
  PageUp: -1,
  PageDown: 1,
};

/** Return the view after a key; null if the key does not move the window. */
export function movedByKey(key: string, view: Viewport, bounds: Viewport): Viewport | null {
  const by = BY_KEY[key];
  return by === undefined ? null : pan(view, by * span(view), bounds);
}
