// The events of the timeline inside an HTML file, as embedded_events.py writes them.

import type { CauseTime_Cause, EventLink_Kind, TimelineEvent } from "../report";
import { summed, unpackedColumn, unpackedJson } from "./columns";

/** From start to end in ns, or null for the whole recording. */
type Part = readonly [start_ns: number, end_ns: number] | null;

/** A part of the recording. */
export interface FilePart {
  readonly start_us: number;
  readonly end_us: number;
}

/** Parts of the recording whose GPU work and host events are in the file; null for the whole recording. */
export interface FileParts {
  readonly gpu: FilePart | null;
  readonly host: FilePart | null;
}

export interface PackedEvents extends FileParts {
  readonly about: string;
  readonly columns: Readonly<Record<string, string>>;
}

interface Lane {
  readonly kind: string;
  readonly title: string;
  readonly device: number;
  readonly rows: number;
}

interface Details {
  /** Indices into the texts, or -1. */
  readonly stack: readonly number[];
  readonly shapes: readonly number[];
  readonly types: readonly number[];
  readonly settings: readonly number[];
  readonly bytes: readonly number[];
  readonly warps_per_block: readonly number[];
  readonly registers: readonly number[];
  readonly shared_bytes: readonly number[];
  readonly blocks: readonly number[];
  readonly blocks_per_sm: readonly number[];
}

interface About {
  readonly start_ns: number;
  readonly end_ns: number;
  /** Of GPU work and idle time, and of host events: the parts of the recording that are in the file. */
  readonly gpu: Part;
  readonly host: Part;
  readonly lanes: readonly Lane[];
  /** Devices. Gaps are numbered through all of them. */
  readonly chains: readonly {
    readonly device: number;
    readonly first_gap: number;
    readonly start_ns: number;
    readonly end_ns: number;
  }[];
  /** Number of events of each row. */
  readonly rows: readonly number[];
  readonly texts: readonly string[];
  readonly details: Details;
  readonly causes: readonly CauseTime_Cause[];
  readonly link_kinds: readonly EventLink_Kind[];
  readonly searched: Readonly<Record<string, readonly number[]>>;
  readonly kinds: {
    readonly operator: number;
    readonly python: number;
    readonly annotation: number;
    readonly calls: readonly number[];
    readonly copy: number;
    readonly communication: number;
  };
  readonly module_prefix: string;
  readonly most: Readonly<Record<"links" | "calls" | "frames" | "rows" | "matches" | "parts", number>>;
}

/** Spans of time on one device each. */
export interface Spans {
  readonly start_ns: Float64Array;
  readonly duration_ns: Float64Array;
  /** Place of the device in `about.chains`. */
  readonly chain: Float64Array;
}

/** Columns have an entry per event, sorted by row and start, unless they say otherwise. */
export interface FileEvents {
  readonly about: About;
  readonly start_ns: Float64Array;
  readonly duration_ns: Float64Array;
  readonly name: Float64Array;
  readonly kind: Float64Array;
  readonly number: Float64Array;
  readonly detail: Float64Array;
  readonly row: Int32Array;
  /** Index of the event that encloses this one, or -1. */
  readonly parent: Int32Array;
  /** Correlation or external id, or 0. */
  readonly id: Float64Array;
  /** Where each row begins, and where the last one ends. */
  readonly firstOfRow: Int32Array;
  readonly laneOfRow: Int32Array;
  readonly depthOfRow: Int32Array;
  /** Index of an event by its number, or -1. */
  readonly place: (number: number) => number;
  readonly gaps: Spans;
  /** Segments of idle time, each with its cause. */
  readonly cuts: Spans & { readonly cause: Float64Array; readonly gap: Float64Array };
  /** Launch queues, in the order of their lanes. */
  readonly queues: readonly { readonly time_ns: Float64Array; readonly depth: Float64Array }[];
  readonly links: Readonly<Record<"first" | "second" | "kind", Float64Array>>;
}

export const NONE = -1;
export const NS_PER_US = 1000;

export async function unpackedEvents({ about: text, columns }: PackedEvents): Promise<FileEvents> {
  const about = (await unpackedJson(text)) as About;
  const names = Object.keys(columns);
  const unpacked = await Promise.all(names.map((name) => unpackedColumn(columns[name] ?? "")));
  const column = (name: string): Float64Array => {
    const found = unpacked[names.indexOf(name)];
    if (!found) throw new RangeError(`the file has no column ${name}`);
    return found;
  };
  const rows = rowsOf(about);
  const start_ns = summed(column("start_ns"));
  const number = summed(column("number"));
  const places = new Int32Array(number.reduce((most, each) => Math.max(most, each), 0) + 1).fill(NONE);
  number.forEach((each, at) => (places[each] = at));
  const spans = (name: string): Spans => ({
    start_ns: summed(column(`${name}_start_ns`)),
    duration_ns: column(`${name}_duration_ns`),
    chain: column(`${name}_chain`),
  });
  return {
    about,
    start_ns,
    duration_ns: column("duration_ns"),
    name: column("name"),
    kind: column("kind"),
    number,
    detail: column("detail"),
    ...rows,
    parent: parentsOf(column("parent"), start_ns, rows, about),
    id: idsOf(column("has_id"), column("id")),
    place: (each) => places[each] ?? NONE,
    gaps: spans("gap"),
    cuts: { ...spans("cut"), cause: column("cut_cause"), gap: summed(column("cut_gap")) },
    queues: queuesOf(column("queue_points"), summed(column("queue_time_ns")), summed(column("queue_depth"))),
    links: {
      first: summed(column("link_first")),
      second: summed(column("link_second")),
      kind: column("link_kind"),
    },
  };
}

type Rows = Pick<FileEvents, "row" | "firstOfRow" | "laneOfRow" | "depthOfRow">;

function rowsOf({ rows, lanes }: About): Rows {
  const firstOfRow = new Int32Array(rows.length + 1);
  rows.forEach((count, at) => (firstOfRow[at + 1] = (firstOfRow[at] ?? 0) + count));
  const row = new Int32Array(firstOfRow[rows.length] ?? 0);
  rows.forEach((_, at) => row.fill(at, firstOfRow[at], firstOfRow[at + 1]));
  return {
    firstOfRow,
    row,
    laneOfRow: Int32Array.from(lanes.flatMap((lane, at) => new Array<number>(lane.rows).fill(at))),
    depthOfRow: Int32Array.from(lanes.flatMap((lane) => Array.from({ length: lane.rows }, (_, at) => at))),
  };
}

/** An event's parent is the one that begins last in the row above, but for the differences. */
function parentsOf(difference: Float64Array, start_ns: Float64Array, rows: Rows, about: About): Int32Array {
  const { firstOfRow, laneOfRow, depthOfRow } = rows;
  const parent = Int32Array.from(difference, (by) => NONE + by);
  const first = (row: number) => firstOfRow[row] ?? 0;
  const start = (at: number) => start_ns[at] ?? 0;
  laneOfRow.forEach((lane, row) => {
    if (about.lanes[lane]?.kind === "stream" || depthOfRow[row] === 0) return;
    const [above, low, high] = [first(row - 1), first(row), first(row + 1)];
    let next = above;
    for (let at = low; at < high; at++) {
      while (next < low && start(next) <= start(at)) next++;
      if (next > above) parent[at] = next - 1 + (difference[at] ?? 0);
    }
  });
  return parent;
}

function idsOf(has: Float64Array, differences: Float64Array): Float64Array {
  const ids = summed(differences);
  let next = 0;
  return has.map((one) => (one > 0 ? (ids[next++] ?? 0) : 0));
}

function queuesOf(points: Float64Array, time_ns: Float64Array, depth: Float64Array): FileEvents["queues"] {
  let end = 0;
  return Array.from(points, (count) => {
    const own = [end, (end += count)] as const;
    return { time_ns: time_ns.subarray(...own), depth: depth.subarray(...own) };
  });
}

/** Index of the first of some ascending times that is not before `time`. */
export function firstFrom(times: Float64Array, time: number, first = 0, end = times.length): number {
  let [low, high] = [first, end];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((times[middle] ?? 0) < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

export function textOf(events: FileEvents, index: number | undefined): string {
  return events.about.texts[index ?? NONE] ?? "";
}

/** The event at this index. */
export function eventAt(events: FileEvents, at: number): TimelineEvent {
  const row = events.row[at] ?? 0;
  return {
    number: events.number[at] ?? 0,
    name: textOf(events, events.name[at]),
    kind: events.kind[at] ?? 0,
    lane: events.laneOfRow[row] ?? 0,
    depth: events.depthOfRow[row] ?? 0,
    start_us: (events.start_ns[at] ?? 0) / NS_PER_US,
    duration_us: (events.duration_ns[at] ?? 0) / NS_PER_US,
  };
}
