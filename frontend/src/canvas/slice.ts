// A slice of the timeline as the server sends it, turned into columns that can be searched and drawn quickly.

import type { Lane, StepMark, Timeline } from "../wire/report";

/** Boxes of one lane and depth, by start; they never overlap. */
export interface Boxes {
  readonly start_us: Float64Array;
  readonly end_us: Float64Array;
  /** Index into the slice's names. */
  readonly name: Uint32Array;
  /** How many events were merged into this box. */
  readonly count: Uint32Array;
  readonly kind: Uint32Array;
  readonly gap: Uint32Array;
}

export interface SliceLane {
  readonly key: string;
  readonly kind: string;
  readonly title: string;
  readonly device: number;
  readonly depths: readonly Boxes[];
}

export interface Slice {
  readonly start_us: number;
  readonly end_us: number;
  readonly names: readonly string[];
  readonly lanes: ReadonlyMap<string, SliceLane>;
  readonly steps: readonly StepMark[];
}

export function sliceOf(timeline: Timeline): Slice {
  const lanes = new Map<string, SliceLane>();
  for (const lane of timeline.lanes) {
    // Two threads may bear one name: the nth of a title is the nth in every slice.
    let key = `${lane.kind}/${lane.device}/${lane.title}`;
    while (lanes.has(key)) key += "'";
    lanes.set(key, { key, kind: lane.kind, title: lane.title, device: lane.device, depths: depthsOf(lane) });
  }
  return {
    start_us: timeline.start_us,
    end_us: timeline.end_us,
    names: timeline.names,
    lanes,
    steps: timeline.steps,
  };
}

function depthsOf(lane: Lane): Boxes[] {
  const members: number[][] = [];
  lane.box_start_us.forEach((_, at) => {
    const depth = lane.box_depth[at] ?? 0;
    while (members.length <= depth) members.push([]);
    members[depth]?.push(at);
  });
  return members
    .map((at) => boxesOf(lane, at))
    .map((boxes) => (lane.kind === "gaps" ? joined(boxes) : boxes));
}

/** Stamps are whole nanoseconds. */
const TOUCHING_US = 0.0005;

/** The ledger cuts a gap wherever the host turns to something else; what is drawn is where the cause changes. */
function joined(boxes: Boxes): Boxes {
  const { start_us, end_us, name, count, kind, gap } = boxes;
  const kept: number[] = [];
  const ends: number[] = [];
  start_us.forEach((start, at) => {
    const last = kept.at(-1);
    const goesOn =
      last !== undefined &&
      gap[last] === gap[at] &&
      name[last] === name[at] &&
      count[last] === 1 &&
      count[at] === 1 &&
      Math.abs(start - (ends.at(-1) ?? 0)) < TOUCHING_US;
    if (goesOn) ends[ends.length - 1] = end_us[at] ?? 0;
    else {
      kept.push(at);
      ends.push(end_us[at] ?? 0);
    }
  });
  const only = (column: Uint32Array) => Uint32Array.from(kept, (at) => column[at] ?? 0);
  return {
    start_us: Float64Array.from(kept, (at) => start_us[at] ?? 0),
    end_us: Float64Array.from(ends),
    name: only(name),
    count: only(count),
    kind: only(kind),
    gap: only(gap),
  };
}

function boxesOf(lane: Lane, members: number[]): Boxes {
  const start = (at: number) => lane.box_start_us[at] ?? 0;
  members.sort((a, b) => start(a) - start(b));
  return {
    start_us: Float64Array.from(members, start),
    end_us: Float64Array.from(members, (at) => start(at) + (lane.box_duration_us[at] ?? 0)),
    name: Uint32Array.from(members, (at) => lane.box_name[at] ?? 0),
    count: Uint32Array.from(members, (at) => lane.box_count[at] ?? 1),
    kind: Uint32Array.from(members, (at) => lane.box_kind[at] ?? 0),
    gap: Uint32Array.from(members, (at) => lane.box_gap[at] ?? 0),
  };
}

/** The first box that ends after `us`; the number of boxes where none does. */
export function firstEndingAfter(boxes: Boxes, us: number): number {
  let low = 0;
  let high = boxes.end_us.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((boxes.end_us[middle] ?? 0) > us) high = middle;
    else low = middle + 1;
  }
  return low;
}

export interface Gap {
  readonly device: number;
  readonly gap: number;
  readonly start_us: number;
  readonly end_us: number;
}

/** The gaps of a slice, longest first. A gap's segments, one for each cause, are put together again. */
export function gapsOf(slice: Slice): Gap[] {
  const found = new Map<string, Gap>();
  for (const lane of slice.lanes.values()) {
    if (lane.kind !== "gaps") continue;
    for (const boxes of lane.depths) {
      boxes.gap.forEach((gap, at) => {
        // A merged box holds several gaps, all too small for this zoom.
        if ((boxes.count[at] ?? 1) > 1) return;
        const start_us = boxes.start_us[at] ?? 0;
        const end_us = boxes.end_us[at] ?? 0;
        const key = `${lane.device}/${gap}`;
        const known = found.get(key);
        found.set(key, {
          device: lane.device,
          gap,
          start_us: Math.min(start_us, known?.start_us ?? start_us),
          end_us: Math.max(end_us, known?.end_us ?? end_us),
        });
      });
    }
  }
  return [...found.values()].sort((a, b) => b.end_us - b.start_us - (a.end_us - a.start_us));
}
