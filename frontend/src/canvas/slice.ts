// A slice of the timeline as columns, for fast search and drawing.

import type { Lane, StepMark, Timeline, Timeline_LaneKind } from "../wire/report";

/** Boxes of one lane and depth, sorted by start. They never overlap. */
export interface Boxes {
  readonly start_us: Float64Array;
  readonly end_us: Float64Array;
  /** Index into the slice's names. */
  readonly name: Uint32Array;
  /** Number of events merged into the box. */
  readonly count: Uint32Array;
  readonly kind: Uint32Array;
  readonly gap: Uint32Array;
}

/** A curve, such as the depth of a queue. Each value holds until the next one's time, the last one until the end of the slice. */
export interface Depth {
  readonly time_us: Float64Array;
  /** Minimum and maximum. They differ where the depth changes faster than the screen can show. */
  readonly low: Float64Array;
  readonly high: Float64Array;
  /** Maximum over the whole trace. */
  readonly most: number;
}

export interface SliceLane {
  readonly key: string;
  /** Index among the server's lanes; -1 for a lane of the page's own. */
  readonly index: number;
  /** The page adds lanes of memory. */
  readonly kind: Timeline_LaneKind | "memory";
  readonly title: string;
  readonly device: number;
  readonly depths: readonly Boxes[];
  /** Null unless the lane is of kind "queue", "counter" or "memory". */
  readonly queue: Depth | null;
  /** Of a counter. */
  readonly unit: string;
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
  for (const [index, lane] of timeline.lanes.entries()) {
    // Two threads can have the same name. Their order is the same in every slice.
    let key = `${lane.kind}/${lane.device}/${lane.title}`;
    while (lanes.has(key)) key += "'";
    const { kind, title, device, unit } = lane;
    lanes.set(key, { key, index, kind, title, device, unit, depths: depthsOf(lane), queue: queueOf(lane) });
  }
  return {
    start_us: timeline.start_us,
    end_us: timeline.end_us,
    names: timeline.names,
    lanes,
    steps: timeline.steps,
  };
}

/** Return the slice with curves of memory, each below the other lanes of its device. */
export function withMemory(slice: Slice, curves: ReadonlyMap<number, Depth>): Slice {
  if (curves.size === 0) return slice;
  const lanes = new Map<string, SliceLane>();
  const all = [...slice.lanes.values()];
  const left = new Map(curves);
  const add = (device: number) => {
    const queue = left.get(device);
    if (!queue) return;
    left.delete(device);
    const title = device < 0 ? "CPU memory" : `GPU ${device} memory`;
    const key = `memory/${device}`;
    lanes.set(key, { key, index: -1, kind: "memory", title, device, unit: "", depths: [], queue });
  };
  all.forEach((lane, at) => {
    lanes.set(lane.key, lane);
    if (all[at + 1]?.device !== lane.device) add(lane.device);
  });
  for (const device of left.keys()) add(device);
  return { ...slice, lanes };
}

function queueOf({ queue, queue_most: most }: Lane): Depth | null {
  if (!queue) return null;
  const { time_us, low, high } = queue;
  return {
    time_us: Float64Array.from(time_us),
    low: Float64Array.from(low),
    high: Float64Array.from(high),
    most,
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

/** Timestamps are whole nanoseconds. */
const TOUCHING_US = 0.0005;

/** Join neighboring segments of a gap with the same cause. The server starts a segment per host activity. */
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

/** Count the times that are not after `us`. `times` is ascending. */
function countUpTo(times: Float64Array, us: number): number {
  let low = 0;
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((times[middle] ?? 0) > us) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Index of the first box that ends after `us`, or the number of boxes if none does. */
export function firstEndingAfter(boxes: Boxes, us: number): number {
  return countUpTo(boxes.end_us, us);
}

/** Index of the value that holds at `us`, or -1 before the first. */
export function holdingAt(depth: Depth, us: number): number {
  return countUpTo(depth.time_us, us) - 1;
}

export interface Gap {
  readonly device: number;
  readonly gap: number;
  readonly start_us: number;
  readonly end_us: number;
}

/** Return the gaps of a slice, longest first. The segments of a gap are joined. */
export function gapsOf(slice: Slice): Gap[] {
  const found = new Map<string, Gap>();
  for (const lane of slice.lanes.values()) {
    if (lane.kind !== "gaps") continue;
    for (const boxes of lane.depths) {
      boxes.gap.forEach((gap, at) => {
        // A merged box is several gaps, all too short for this zoom level.
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

/** Return the kinds of events in the lanes. Gaps have a cause instead of a kind. */
export function kindsOf(slice: Slice): ReadonlySet<number> {
  const kinds = new Set<number>();
  for (const lane of slice.lanes.values()) {
    if (lane.kind === "gaps") continue;
    for (const { kind } of lane.depths) for (const one of kind) kinds.add(one);
  }
  return kinds;
}
