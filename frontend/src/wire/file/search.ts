// Search in the events of a file. The same as timeline_range.py.

import type { Matches } from "../report";
import { eventAt, textOf, type FileEvents } from "./events";

/** Return the matches from the one with index `from`. */
export function findEvents(events: FileEvents, query: URLSearchParams): Matches {
  const { about } = events;
  const text = query.get("text") ?? "";
  const kind = query.get("kind") ?? "any";
  let matches: (name: string) => boolean;
  try {
    matches = query.get("regex") === "1" ? pattern(text) : contains(text);
  } catch (error) {
    return notValid(error);
  }
  const names = matchingNames(
    events,
    kind === "module" ? both(contains(about.module_prefix), matches) : matches,
  );
  const kinds = new Set(about.searched[kind]);
  const found: number[] = [];
  for (let at = 0; at < events.name.length; at++) {
    if (names.has(events.name[at] ?? 0) && kinds.has(events.kind[at] ?? 0)) found.push(at);
  }
  const { start_ns, number } = events;
  found.sort((a, b) => (start_ns[a] ?? 0) - (start_ns[b] ?? 0) || (number[a] ?? 0) - (number[b] ?? 0));
  const first = Number(query.get("from") ?? 0);
  const limit = Math.min(Number(query.get("limit") ?? about.most.matches), about.most.matches);
  return {
    ...NO_MATCHES,
    total: found.length,
    first,
    events: found.slice(first, first + limit).map((at) => eventAt(events, at)),
    per_part: perPart(events, found),
  };
}

const NO_MATCHES: Matches = {
  ...{ state: "ready", error: undefined, progress: 1 },
  ...{ total: 0, first: 0, events: [], per_part: [] },
};

function notValid(error: unknown): Matches {
  const why = error instanceof Error ? error.message.split(": ").at(-1) : "";
  const what = `Not a valid regular expression: ${why ?? ""}`;
  return { ...NO_MATCHES, state: "failed", error: { what, where: "text", remedy: "" } };
}

function contains(text: string): (name: string) => boolean {
  const wanted = text.toLowerCase();
  return (name) => name.toLowerCase().includes(wanted);
}

/** Patterns are RE2's on the server. These are the parts of its syntax that a browser writes in another way. */
function pattern(text: string): (name: string) => boolean {
  const compiled = new RegExp(text.replace(/^\(\?i\)/, "").replaceAll("(?P<", "(?<"), "i");
  return (name) => compiled.test(name);
}

function both<T>(one: (of: T) => boolean, other: (of: T) => boolean): (of: T) => boolean {
  return (of) => one(of) && other(of);
}

/** Match each name once: a trace has few different ones. */
function matchingNames(events: FileEvents, matches: (name: string) => boolean): ReadonlySet<number> {
  return new Set([...new Set(events.name)].filter((name) => matches(textOf(events, name))));
}

function perPart({ about, start_ns }: FileEvents, found: readonly number[]): number[] {
  if (found.length === 0) return [];
  const { parts } = about.most;
  const counts = new Array<number>(parts).fill(0);
  const length = Math.max(about.end_ns - about.start_ns, 1);
  for (const at of found) {
    const part = Math.floor((((start_ns[at] ?? 0) - about.start_ns) * parts) / length);
    const place = Math.min(Math.max(part, 0), parts - 1);
    counts[place] = (counts[place] ?? 0) + 1;
  }
  return counts;
}
