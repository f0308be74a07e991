// How far to scroll the lanes so that something on them is in sight.

import type { Rows } from "../../canvas/rows";
import { HEAD_PX, type Spot } from "../../canvas/scene";

/** One line of a lane, in pixels from the top of the first lane. */
export interface Line {
  readonly top: number;
  readonly height: number;
}

/**
 * Return the line of the event, or without one the first of the device's lanes. Null if there is none, and for a pinned
 * lane, which is always in sight.
 */
export function lineOf({ rows }: Rows, event: Spot | null, device: number | undefined): Line | null {
  const lane = rows.find((row) => (event ? row.key === event.lane : row.device === device));
  if (!lane || lane.pinned) return null;
  const depth = event ? Math.max(0, event.depth - lane.first) : 0;
  const within = Math.min(depth * lane.step, lane.height - lane.step);
  return { top: lane.top + within, height: lane.step };
}

interface Sight {
  /** How far the lanes are scrolled, and their height with the ruler. */
  readonly scroll: number;
  readonly height: number;
  /** Height of the pinned lanes, which cover the others. */
  readonly pinned: number;
}

/** Return how far to scroll. Null if the line is in sight. `above` is the room that is left above it. */
export function scrollTo({ top, height }: Line, sight: Sight, above: number): number | null {
  const isAbove = top < sight.scroll + sight.pinned;
  const isBelow = top + height > sight.scroll + sight.height - HEAD_PX;
  return isAbove || isBelow ? Math.max(0, top - above) : null;
}
