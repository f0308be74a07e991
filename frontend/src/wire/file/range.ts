// Statistics of a range of the events of a file. The same as timeline_range.py.

import type { DeviceRange, NamedTime, RangeStatistics, ThreadRange } from "../report";
import { NS_PER_US, textOf, type FileEvents, type Spans } from "./events";

/** Indices of the events that overlap the range, and how much of each is inside. */
interface Inside {
  readonly at: readonly number[];
  readonly inside_ns: Float64Array;
}

/** What is not in the file is not in the answer. */
export function rangeStatistics(events: FileEvents, start_us: number, end_us: number): RangeStatistics {
  const { about } = events;
  const low = Math.round(start_us * NS_PER_US);
  const high = Math.max(Math.round(end_us * NS_PER_US), low);
  const has = (part: readonly [number, number] | null) =>
    part === null || (part[0] <= low && high <= part[1]);
  const work = between(events, low, high, "stream");
  const host = between(events, low, high, "thread");
  const self_ns = selfTimes(events, host);
  const { operator, calls } = about.kinds;
  const byKind = (kinds: readonly number[]) =>
    byName(events, host, self_ns, host.inside_ns, (kind) => kinds.includes(kind));
  const [hasWork, hasHost] = [has(about.gpu), has(about.host)];
  return {
    ...{ state: "ready", error: undefined, progress: 1 },
    start_us: low / NS_PER_US,
    end_us: high / NS_PER_US,
    devices: hasWork ? about.chains.map((_, chain) => deviceRange(events, chain, work, low, high)) : [],
    threads: hasHost ? threadRanges(events, host, self_ns, high - low) : [],
    operators: hasHost ? byKind([operator]) : [],
    calls: hasHost ? byKind(calls) : [],
    kernels: hasWork ? byName(events, work, work.inside_ns, work.inside_ns, () => true) : [],
  };
}

function between(events: FileEvents, low: number, high: number, kind: string): Inside {
  const { about, start_ns, duration_ns, row, laneOfRow } = events;
  const isOf = laneOfRow.map((lane) => Number(about.lanes[lane]?.kind === kind));
  const at: number[] = [];
  const inside: number[] = [];
  for (let index = 0; index < start_ns.length; index++) {
    const start = start_ns[index] ?? 0;
    const end = start + (duration_ns[index] ?? 0);
    if (start >= high || end <= low || isOf[row[index] ?? 0] !== 1) continue;
    at.push(index);
    inside.push(Math.min(end, high) - Math.max(start, low));
  }
  return { at, inside_ns: Float64Array.from(inside) };
}

/** How long each span is the innermost one of its thread. */
function selfTimes(events: FileEvents, { at, inside_ns }: Inside): Float64Array {
  const nested = new Float64Array(events.start_ns.length);
  at.forEach((index, place) => {
    const parent = events.parent[index] ?? -1;
    if (parent >= 0) nested[parent] = (nested[parent] ?? 0) + (inside_ns[place] ?? 0);
  });
  return inside_ns.map((inside, place) => inside - (nested[at[place] ?? 0] ?? 0));
}

function deviceRange(
  events: FileEvents,
  chain: number,
  work: Inside,
  low: number,
  high: number,
): DeviceRange {
  const { about, cuts, gaps } = events;
  const { device, start_ns, end_ns } = about.chains[chain] ?? { device: 0, start_ns: 0, end_ns: 0 };
  const idle_ns = new Float64Array(about.causes.length);
  let all_ns = 0;
  eachInside(cuts, chain, low, high, (at, inside) => {
    const cause = cuts.cause[at] ?? 0;
    idle_ns[cause] = (idle_ns[cause] ?? 0) + inside;
    all_ns += inside;
  });
  let count = 0;
  eachInside(gaps, chain, low, high, () => {
    count++;
  });
  const inside = Math.max(0, Math.min(high, end_ns) - Math.max(low, start_ns));
  const { communicating, copying } = exposed(events, device, work, low, high);
  return {
    device,
    computing_us: (inside - all_ns - communicating - copying) / NS_PER_US,
    copying_us: copying / NS_PER_US,
    communicating_us: communicating / NS_PER_US,
    idle_by_cause: about.causes.flatMap((cause, at) => {
      const time = idle_ns[at] ?? 0;
      return time > 0 ? [{ cause, us: time / NS_PER_US }] : [];
    }),
    outside_us: (high - low - inside) / NS_PER_US,
    gaps: count,
  };
}

function eachInside(
  { start_ns, duration_ns, chain }: Spans,
  of: number,
  low: number,
  high: number,
  visit: (at: number, inside: number) => void,
): void {
  for (let at = 0; at < start_ns.length; at++) {
    const start = start_ns[at] ?? 0;
    const end = start + (duration_ns[at] ?? 0);
    if (chain[at] === of && start < high && end > low) visit(at, Math.min(end, high) - Math.max(start, low));
  }
}

/** Time of exposed communication, and of exposed copies: go through all starts and ends in order. */
function exposed(events: FileEvents, device: number, { at, inside_ns }: Inside, low: number, high: number) {
  const { about, kind, row, laneOfRow, start_ns, duration_ns } = events;
  const { copy, communication } = about.kinds;
  const changes: { readonly time: number; readonly of: 0 | 1 | 2; readonly by: number }[] = [];
  at.forEach((index, place) => {
    if (about.lanes[laneOfRow[row[index] ?? 0] ?? 0]?.device !== device || !inside_ns[place]) return;
    const of = kind[index] === communication ? 1 : kind[index] === copy ? 2 : 0;
    const start = start_ns[index] ?? 0;
    changes.push({ time: Math.max(start, low), of, by: 1 });
    changes.push({ time: Math.min(start + (duration_ns[index] ?? 0), high), of, by: -1 });
  });
  changes.sort((a, b) => a.time - b.time);
  const running = [0, 0, 0];
  let [communicating, copying, before] = [0, 0, low];
  for (const { time, of, by } of changes) {
    const [computes = 0, communicates = 0, copies = 0] = running;
    if (computes === 0 && communicates > 0) communicating += time - before;
    else if (computes === 0 && copies > 0) copying += time - before;
    before = time;
    running[of] = (running[of] ?? 0) + by;
  }
  return { communicating, copying };
}

function threadRanges(
  events: FileEvents,
  host: Inside,
  self_ns: Float64Array,
  length: number,
): ThreadRange[] {
  const { about, kind, row, laneOfRow } = events;
  const { operator, calls, python, annotation } = about.kinds;
  const byLane = about.lanes.map(() => new Map<number, number>());
  host.at.forEach((index, place) => {
    const times = byLane[laneOfRow[row[index] ?? 0] ?? 0];
    const of = kind[index] ?? 0;
    times?.set(of, (times.get(of) ?? 0) + (self_ns[place] ?? 0));
  });
  return about.lanes.flatMap((lane, at) => {
    if (lane.kind !== "thread") return [];
    const times = byLane[at] ?? new Map<number, number>();
    const sum = (kinds: Iterable<number>) => [...kinds].reduce((all, of) => all + (times.get(of) ?? 0), 0);
    return [
      {
        title: lane.title,
        operators_us: sum([operator]) / NS_PER_US,
        calls_us: sum(calls) / NS_PER_US,
        python_us: sum([python]) / NS_PER_US,
        annotations_us: sum([annotation]) / NS_PER_US,
        nothing_us: (length - sum(times.keys())) / NS_PER_US,
      },
    ];
  });
}

interface Sums {
  readonly name: number;
  count: number;
  self_ns: number;
  total_ns: number;
}

/** Sum events by name, most time first. */
function byName(
  events: FileEvents,
  { at }: Inside,
  self_ns: Float64Array,
  total_ns: Float64Array,
  isWanted: (kind: number) => boolean,
): NamedTime[] {
  const sums = new Map<number, Sums>();
  at.forEach((index, place) => {
    if (!isWanted(events.kind[index] ?? 0)) return;
    const name = events.name[index] ?? 0;
    const sum = sums.get(name) ?? { name, count: 0, self_ns: 0, total_ns: 0 };
    sums.set(name, sum);
    sum.count++;
    sum.self_ns += self_ns[place] ?? 0;
    sum.total_ns += total_ns[place] ?? 0;
  });
  const order = [...sums.values()].sort((a, b) => b.self_ns - a.self_ns || a.name - b.name);
  const row = (name: string, { count, self_ns: own, total_ns: total }: Omit<Sums, "name">) => ({
    ...{ name, count },
    self_us: own / NS_PER_US,
    total_us: total / NS_PER_US,
  });
  const { rows: most } = events.about.most;
  const rows = order.slice(0, most).map((sum) => row(textOf(events, sum.name), sum));
  const rest = order.slice(most);
  if (rest.length === 0) return rows;
  const sum = (of: (one: Sums) => number) => rest.reduce((all, one) => all + of(one), 0);
  const others = {
    count: sum(({ count }) => count),
    self_ns: sum((one) => one.self_ns),
    total_ns: sum((one) => one.total_ns),
  };
  return [...rows, row("", others)];
}
