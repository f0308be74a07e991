// What dragging and clicking on the lanes does. Points are in pixels from the canvas' upper left corner.

import { aired, pan, span, toTime, type Viewport } from "../../base/viewport";
import type { Hit } from "../../canvas/hit";
import { HEAD_PX } from "../../canvas/scene";
import type { Slice } from "../../canvas/slice";
import type { PageState } from "../../state/store";

export interface Point {
  readonly x: number;
  readonly y: number;
}

export interface Drag extends Point {
  readonly kind: "pan" | "select";
  /** The view, and how far the lanes were scrolled, when the drag began. */
  readonly view: Viewport;
  readonly scroll: number;
  /** False while it may still be a click. */
  readonly moved: boolean;
}

/** A pointer that moves less than this between down and up is a click. */
const CLICK_PX = 4;

/** Begin to drag. On the ruler or with Shift that selects, elsewhere it pans. */
export function grabbed(at: Point, shift: boolean, view: Viewport, scroll: number): Drag {
  return { ...at, kind: shift || at.y < HEAD_PX ? "select" : "pan", view, scroll, moved: false };
}

export function movesFar(drag: Drag, { x, y }: Point): boolean {
  return drag.moved || Math.hypot(x - drag.x, y - drag.y) >= CLICK_PX;
}

/** Return the range from where the drag began to the pointer, cut at the edges of the canvas. */
export function drawnRange({ x: from, view }: Pick<Drag, "x" | "view">, x: number, width: number): Viewport {
  const [start_us = 0, end_us = 0] = [from, Math.min(Math.max(x, 0), width)]
    .map((pixel) => toTime(view, pixel, width))
    .sort((a, b) => a - b);
  return { start_us, end_us };
}

/** Return what is seen once the pointer has pulled the lanes to `to`. */
export function pulled(
  drag: Drag,
  to: Point,
  width: number,
  bounds: Viewport,
): { readonly view: Viewport; readonly scroll: number } {
  return {
    view: pan(drag.view, ((drag.x - to.x) / width) * span(drag.view), bounds),
    scroll: drag.scroll + drag.y - to.y,
  };
}

/** Return what a click opens: a gap, an event, or a closer view of merged ones. Elsewhere it closes them. */
export function openedBy(
  found: Hit | null,
  slice: Slice | null,
): Partial<Pick<PageState, "gap" | "event" | "view">> {
  if (!found || found.queued) return { gap: null, event: null };
  const { row, gap, depth, start_us } = found;
  if (gap !== null) return { gap: { device: row.device, gap }, event: null };
  if (found.count > 1) return { view: aired(found) };
  return { event: { lane: slice?.lanes.get(row.key)?.index ?? -1, depth, start_us }, gap: null };
}
