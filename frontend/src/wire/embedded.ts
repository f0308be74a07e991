// The page without a server: answers from data inside the HTML file. See slices/embedded.py.

import { ServerError, type Source } from "./client";
import type { Problem, Timeline, TraceList } from "./report";
import { unpackedJson } from "./file/columns";
import { eventDetails } from "./file/details";
import { unpackedEvents, type FileEvents, type PackedEvents } from "./file/events";
import { rangeStatistics } from "./file/range";
import { findEvents } from "./file/search";
import { exactSlice } from "./file/slice";
import { joined } from "./joined";

interface Part {
  readonly start_us: number;
  readonly end_us: number;
  /** Gzipped JSON in base64, as are all other texts here. */
  readonly answer: string;
}

interface Whole {
  /** The parameters that choose one of the answers. */
  readonly about: readonly string[];
  /** By the parameters' values, such as "range/operator". */
  readonly answers: Readonly<Record<string, string>>;
}

export interface Content {
  readonly traces: TraceList;
  readonly report: string;
  readonly rules: string;
  /** Ranges that split others into quarters, the whole trace first. */
  readonly timeline: readonly Part[];
  /** Null without a timeline. */
  readonly events: PackedEvents | null;
  /** By device. */
  readonly memory: Readonly<Record<string, string>>;
  /** Allocations over the whole recording as bands, by device. */
  readonly bands: Readonly<Record<string, string>>;
  readonly gaps: string;
  /** Slices of the whole recording, by route. */
  readonly tables: Readonly<Record<string, Whole>>;
}

/** A view that asks for twice its width never needs more. */
const MOST_PARTS = 8;

const ELSEWHERE = "Open the trace in TensorBoard, or with `gpudiag serve`.";

/** What needs more of the trace than a file has room for. */
const LEFT_OUT: Readonly<Record<string, string>> = {
  calls: "This file does not include the details of a row.",
};

function missing(what: string): { state: string; progress: number; error: Problem } {
  return { state: "failed", progress: 0, error: { what, where: "", remedy: ELSEWHERE } };
}

export function embeddedSource(content: Content): Source {
  const kept = new Map<string, Promise<unknown>>();
  const unpack = (text: string): Promise<unknown> => {
    const found = kept.get(text) ?? unpackedJson(text);
    kept.set(text, found);
    return found;
  };
  let unpackedOnce: Promise<FileEvents> | undefined;
  /** Answer from the events. They are unpacked for the first question about them. */
  const fromEvents =
    (answer: (events: FileEvents, query: URLSearchParams) => unknown) =>
    async (query: URLSearchParams): Promise<unknown> => {
      if (content.events === null) return missing("This file has no timeline.");
      return answer(await (unpackedOnce ??= unpackedEvents(content.events)), query);
    };
  const timeline = async (query: URLSearchParams): Promise<unknown> => {
    if (content.timeline.length === 0) return missing("This file has no timeline.");
    const [start_us, end_us] = [number(query, "start_us"), number(query, "end_us")];
    const parts = partsFor(content.timeline, start_us, end_us);
    const merged = joined((await Promise.all(parts.map(({ answer }) => unpack(answer)))) as Timeline[]);
    if (start_us === null || end_us === null) return merged;
    const exact = fromEvents((events) => exactSlice(events, merged, start_us, end_us));
    return (await exact(query)) ?? merged;
  };
  const memory = async (query: URLSearchParams): Promise<unknown> => {
    if (query.get("width") === "1")
      return missing("This file does not include the allocations of a range that you select.");
    const found = content.memory[query.get("device") ?? ""] ?? Object.values(content.memory)[0];
    return found === undefined ? missing("This file has no memory curve.") : unpack(found);
  };
  const memoryBands = async (query: URLSearchParams): Promise<unknown> => {
    const found = content.bands[query.get("device") ?? ""];
    return found === undefined ? missing("This file does not include the blocks over time.") : unpack(found);
  };
  const gap = async (query: URLSearchParams): Promise<unknown> => {
    const gaps = (await unpack(content.gaps)) as Readonly<Record<string, unknown>>;
    const found = gaps[`${query.get("device") ?? ""}:${query.get("gap") ?? ""}`];
    return found ?? missing("This file includes the longest gaps only, and this is not one of them.");
  };
  /** Rows are filtered here; the page sorts them. A part of a call tree (`root`) is not cut out: the answer is the whole tree. */
  const whole =
    ({ about, answers }: Whole) =>
    async (query: URLSearchParams): Promise<unknown> => {
      if (query.has("start_us") || query.has("start"))
        return missing("This file has these figures for the whole recording only.");
      const found = answers[about.map((name) => query.get(name) ?? "").join("/")];
      if (found === undefined) return missing("This file does not include this table.");
      return filtered(await unpack(found), (query.get("filter") ?? "").toLowerCase());
    };
  const rule = async (query: URLSearchParams): Promise<unknown> => {
    const rules = (await unpack(content.rules)) as Readonly<Record<string, unknown>>;
    const found = rules[query.get("id") ?? ""];
    if (found === undefined) throw new ServerError("rule", 404);
    return found;
  };
  const { generation } = content.traces;
  const routes: Readonly<Record<string, (query: URLSearchParams) => Promise<unknown>>> = {
    traces: (query) => Promise.resolve(query.has("known") ? { generation, unchanged: true } : content.traces),
    report: () => unpack(content.report),
    timeline,
    memory,
    memoryBands,
    gap,
    find: fromEvents(findEvents),
    event: fromEvents(
      (events, query) => eventDetails(events, query) ?? missing("There is no such event in this file."),
    ),
    range: fromEvents((events, query) =>
      rangeStatistics(events, number(query, "start_us") ?? 0, number(query, "end_us") ?? 0),
    ),
    rule,
    ...Object.fromEntries(Object.entries(content.tables).map(([route, found]) => [route, whole(found)])),
  };
  return (route, query) => {
    const answer = routes[route]?.(query);
    return answer ?? Promise.resolve(missing(LEFT_OUT[route] ?? "This file does not include that."));
  };
}

interface Rows {
  readonly rows: readonly { readonly name: string }[];
}

function filtered(table: unknown, text: string): unknown {
  if (text === "") return table;
  const rows = (table as Rows).rows.filter(({ name }) => name.toLowerCase().includes(text));
  return { ...(table as Rows), rows, total_rows: rows.length, rest: undefined, all: undefined };
}

function number(query: URLSearchParams, name: string): number | null {
  const text = query.get(name);
  return text === null ? null : Number(text);
}

/** Return the finest parts that cover the range together, in order of time. */
export function partsFor<T extends { readonly start_us: number; readonly end_us: number }>(
  parts: readonly T[],
  start_us: number | null,
  end_us: number | null,
): readonly T[] {
  const [whole] = parts;
  if (!whole || start_us === null || end_us === null) return parts.slice(0, 1);
  const wanted = parts.filter((part) => part.start_us < end_us && part.end_us > start_us);
  let chosen: readonly T[] = [whole];
  for (;;) {
    const finer = chosen.flatMap((part) => {
      const inside = wanted.filter((other) => isQuarter(other, part));
      // Part of a range may be left out, for lack of room: then its parent covers it.
      const complete = covers(inside, Math.max(part.start_us, start_us), Math.min(part.end_us, end_us));
      return complete ? inside : [part];
    });
    if (finer.length > MOST_PARTS || finer.every((part) => chosen.includes(part))) return chosen;
    chosen = finer;
  }
}

interface Range {
  readonly start_us: number;
  readonly end_us: number;
}

/** Rounding makes a quarter a little more or less than that. */
function isQuarter(part: Range, of: Range): boolean {
  const ratio = (part.end_us - part.start_us) / (of.end_us - of.start_us);
  const slack = (of.end_us - of.start_us) / 1000;
  return (
    ratio > 0.2 && ratio < 0.3 && part.start_us >= of.start_us - slack && part.end_us <= of.end_us + slack
  );
}

function covers(parts: readonly Range[], start_us: number, end_us: number): boolean {
  const length = parts.reduce(
    (sum, part) => sum + Math.min(part.end_us, end_us) - Math.max(part.start_us, start_us),
    0,
  );
  return parts.length > 0 && length >= (end_us - start_us) * 0.999;
}
