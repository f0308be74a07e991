// Where each lane stands, in pixels from the top of all lanes.

import type { Slice } from "./slice";

export interface Row {
  readonly key: string;
  readonly kind: string;
  readonly title: string;
  readonly device: number;
  readonly top: number;
  readonly height: number;
  /** Height of one depth. */
  readonly step: number;
  readonly depths: number;
  readonly folded: boolean;
}

export interface Rows {
  readonly rows: readonly Row[];
  readonly height: number;
}

const HEIGHTS: Readonly<Record<string, number>> = { gaps: 22, stream: 18 };
const THREAD_DEPTH_PX = 15;
const FOLDED_DEPTHS = 1;
const SPACE_PX = 5;

/** How deep each lane is, over all slices seen so far: a lane never shrinks while one zooms. */
export type Depths = ReadonlyMap<string, number>;

export function deepest(known: Depths, slice: Slice): Depths {
  const grown = [...slice.lanes.values()].filter((lane) => lane.depths.length > (known.get(lane.key) ?? 0));
  if (grown.length === 0) return known;
  return new Map([...known, ...grown.map((lane) => [lane.key, lane.depths.length] as const)]);
}

export function rowsOf(slice: Slice, depths: Depths, folded: ReadonlySet<string>): Rows {
  const rows: Row[] = [];
  let top = 0;
  for (const lane of slice.lanes.values()) {
    const isFolded = folded.has(lane.key);
    const deep = Math.max(1, depths.get(lane.key) ?? lane.depths.length);
    const shown = isFolded ? Math.min(deep, FOLDED_DEPTHS) : deep;
    const step = HEIGHTS[lane.kind] ?? THREAD_DEPTH_PX;
    const { key, kind, title, device } = lane;
    rows.push({ key, kind, title, device, top, height: shown * step, step, depths: deep, folded: isFolded });
    top += shown * step + SPACE_PX;
  }
  return { rows, height: top };
}
