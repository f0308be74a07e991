// Finds what is under the pointer.

import { toTime, type Viewport } from "../base/viewport";
import { topOf, type Row, type Rows } from "./rows";
import { firstEndingAfter, holdingAt, type Boxes, type Slice, type SliceLane } from "./slice";

export interface Hit {
  readonly row: Row;
  readonly depth: number;
  readonly start_us: number;
  readonly end_us: number;
  readonly name: string;
  readonly count: number;
  readonly kind: number;
  /** The gap's number. Null outside of the gap lanes and for merged gaps. */
  readonly gap: number | null;
  /** Minimum and maximum of a curve. Null outside of the lanes that have one. */
  readonly queued: readonly [least: number, most: number] | null;
}

/** The pointer may miss a narrow box by this much. */
const NEAR_PX = 3;

/** `y` is in pixels below the ruler. */
export function rowAt({ rows, pinned }: Rows, y: number, scroll = 0): Row | null {
  const within = rows.filter((row) => row.pinned === y < pinned);
  return within.find((row) => y >= topOf(row, scroll) && y < topOf(row, scroll) + row.height) ?? null;
}

/** Return what is at `x` pixels from the left of the lanes and `y` below the ruler. */
export function hit(
  slice: Slice,
  rows: Rows,
  view: Viewport,
  width_px: number,
  x: number,
  y: number,
  scroll = 0,
): Hit | null {
  const row = rowAt(rows, y, scroll);
  if (!row) return null;
  const lane = slice.lanes.get(row.key);
  const at_us = toTime(view, x, width_px);
  if (lane?.queue) return hitQueue(slice, row, lane, at_us);
  const depth = row.first + Math.floor((y - topOf(row, scroll)) / row.step);
  const boxes = lane?.depths[depth];
  if (!boxes) return null;
  const best = nearestBox(boxes, at_us, toTime(view, x + NEAR_PX, width_px) - at_us);
  if (best === -1) return null;
  const merged = boxes.count[best] ?? 1;
  return {
    row,
    depth,
    start_us: boxes.start_us[best] ?? 0,
    end_us: boxes.end_us[best] ?? 0,
    name: slice.names[boxes.name[best] ?? 0] ?? "",
    count: merged,
    kind: boxes.kind[best] ?? 0,
    gap: row.kind === "gaps" && merged <= 1 ? (boxes.gap[best] ?? 0) : null,
    queued: null,
  };
}

/** Return the index of the box nearest to `at_us`, -1 if none is within `near_us`. */
function nearestBox(boxes: Boxes, at_us: number, near_us: number): number {
  let best = -1;
  let nearest = Infinity;
  for (let at = firstEndingAfter(boxes, at_us - near_us); at < boxes.start_us.length; at += 1) {
    const start = boxes.start_us[at] ?? 0;
    if (start > at_us + near_us) break;
    const away = Math.max(start - at_us, at_us - (boxes.end_us[at] ?? 0), 0);
    if (away < nearest) {
      nearest = away;
      best = at;
    }
    if (away === 0) break;
  }
  return best;
}

function hitQueue(slice: Slice, row: Row, { title, queue }: SliceLane, at_us: number): Hit | null {
  const at = queue ? holdingAt(queue, at_us) : -1;
  if (!queue || at === -1) return null;
  return {
    row,
    depth: row.first,
    start_us: queue.time_us[at] ?? 0,
    end_us: queue.time_us[at + 1] ?? slice.end_us,
    name: title,
    count: 1,
    kind: 0,
    gap: null,
    queued: [queue.low[at] ?? 0, queue.high[at] ?? 0],
  };
}
