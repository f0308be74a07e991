// A range of the timeline with each of its events, from the events of a file.

import type { Curve, Lane, Timeline } from "../report";
import { firstFrom, NS_PER_US, textOf, type FileEvents } from "./events";

/** A browser draws this many boxes at once. */
const MOST_BOXES = 20_000;

interface Range {
  readonly low: number;
  readonly high: number;
}

/**
 * Return `merged`, which covers this range, with the range's events themselves. Null if there are too many, or if the
 * file does not have all of them.
 */
export function exactSlice(
  events: FileEvents,
  merged: Timeline,
  start_us: number,
  end_us: number,
): Timeline | null {
  const { about } = events;
  const range = { low: Math.round(start_us * NS_PER_US), high: Math.round(end_us * NS_PER_US) };
  const [first, last] = [Math.max(range.low, about.start_ns), Math.min(range.high, about.end_ns)];
  if ([about.gpu, about.host].some((part) => part !== null && (part[0] > first || last > part[1])))
    return null;
  const cuts = membersOf(events.cuts.start_ns.length, (at) => overlaps(events.cuts, at, range));
  const rows = about.rows.map((_, row) => eventsOfRow(events, row, range));
  if (rows.reduce((sum, row) => sum + row.length, cuts.length) > MOST_BOXES) return null;
  const names = new Map<string, number>();
  let [row, queue] = [0, 0];
  const lanes = merged.lanes.map((lane, at): Lane => {
    const from = row;
    row += about.lanes[at]?.rows ?? 0;
    if (lane.kind === "queue") return { ...lane, queue: curveOf(events.queues[queue++], range) };
    if (lane.kind === "gaps") return gapLane(events, lane, cuts, names);
    return eventLane(events, lane, rows.slice(from, row), names);
  });
  return { ...merged, start_us, end_us, lanes, names: [...names.keys()] };
}

function membersOf(count: number, isOne: (at: number) => boolean): number[] {
  return Array.from({ length: count }, (_, at) => at).filter(isOne);
}

interface Times {
  readonly start_ns: Float64Array;
  readonly duration_ns: Float64Array;
}

function overlaps({ start_ns, duration_ns }: Times, at: number, { low, high }: Range): boolean {
  const start = start_ns[at] ?? 0;
  return start < high && (start >= low || start + (duration_ns[at] ?? 0) > low);
}

/** Events of a row follow one another. */
function eventsOfRow(events: FileEvents, row: number, range: Range): number[] {
  const [first, end] = [events.firstOfRow[row] ?? 0, events.firstOfRow[row + 1] ?? 0];
  const from = Math.max(firstFrom(events.start_ns, range.low, first, end) - 1, first);
  const until = firstFrom(events.start_ns, range.high, first, end);
  return membersOf(Math.max(until - from, 0), (at) => overlaps(events, from + at, range)).map(
    (at) => from + at,
  );
}

function indexOf(names: Map<string, number>, name: string): number {
  const index = names.get(name) ?? names.size;
  names.set(name, index);
  return index;
}

function laneOf(lane: Lane, times: Times, at: readonly number[]): Lane {
  return {
    ...lane,
    box_start_us: at.map((index) => (times.start_ns[index] ?? 0) / NS_PER_US),
    box_duration_us: at.map((index) => (times.duration_ns[index] ?? 0) / NS_PER_US),
    box_depth: at.map(() => 0),
    box_count: at.map(() => 1),
    box_kind: at.map(() => 0),
  };
}

function eventLane(
  events: FileEvents,
  lane: Lane,
  rows: readonly (readonly number[])[],
  names: Map<string, number>,
): Lane {
  const at = rows.flat();
  return {
    ...laneOf(lane, events, at),
    box_name: at.map((index) => indexOf(names, textOf(events, events.name[index]))),
    box_depth: rows.flatMap((row, depth) => row.map(() => depth)),
    box_kind: at.map((index) => events.kind[index] ?? 0),
  };
}

function gapLane(
  { about, cuts }: FileEvents,
  lane: Lane,
  all: readonly number[],
  names: Map<string, number>,
): Lane {
  const chain = about.chains.findIndex(({ device }) => device === lane.device);
  const at = all.filter((index) => cuts.chain[index] === chain);
  const first = about.chains[chain]?.first_gap ?? 0;
  return {
    ...laneOf(lane, cuts, at),
    box_name: at.map((index) => indexOf(names, about.causes[cuts.cause[index] ?? 0] ?? "")),
    box_gap: at.map((index) => (cuts.gap[index] ?? 0) - first),
  };
}

/** Before its first point, a curve shows nothing. */
function curveOf(queue: FileEvents["queues"][number] | undefined, { low, high }: Range): Curve {
  if (!queue) return { time_us: [], low: [], high: [] };
  const first = Math.max(firstFrom(queue.time_ns, low + 1) - 1, 0);
  const end = firstFrom(queue.time_ns, high);
  const depth = [...queue.depth.subarray(first, end)];
  const time_us = Array.from(queue.time_ns.subarray(first, end), (time) => Math.max(time, low) / NS_PER_US);
  return { time_us, low: depth, high: depth };
}
