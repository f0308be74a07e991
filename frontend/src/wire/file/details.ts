// Details of an event of a file. The same as timeline_events.py.

import type { EventDetails, EventLink } from "../report";
import { eventAt, firstFrom, NONE, NS_PER_US, textOf, type FileEvents } from "./events";

/** The event that the query names: by its number, or by its lane, depth and time. Null if there is none. */
export function eventDetails(events: FileEvents, query: URLSearchParams): EventDetails | null {
  const number = query.get("event");
  const at = number === null ? eventOf(events, query) : events.place(Number(number));
  return at === NONE ? null : detailsOf(events, at);
}

/** The event of a row that runs at a time, else the next one. `previous`: the last one that begins before it. */
function eventOf({ about, firstOfRow, start_ns, duration_ns }: FileEvents, query: URLSearchParams): number {
  const [lane = 0, depth = 0, start_us = 0] = ["lane", "depth", "start_us"].map((name) =>
    Number(query.get(name) ?? 0),
  );
  const { kind = "", rows = 0 } = about.lanes[lane] ?? {};
  if (!["stream", "thread"].includes(kind) || depth >= rows) return NONE;
  const row = about.lanes.slice(0, lane).reduce((sum, each) => sum + each.rows, depth);
  const time_ns = Math.round(start_us * NS_PER_US);
  const [first, end] = [firstOfRow[row] ?? 0, firstOfRow[row + 1] ?? 0];
  const low = firstFrom(start_ns, time_ns, first, end);
  const before = low > first ? low - 1 : NONE;
  if (query.get("previous") === "1") return before;
  const runs = before !== NONE && (start_ns[before] ?? 0) + (duration_ns[before] ?? 0) > time_ns;
  return runs ? before : low < end ? low : NONE;
}

function detailsOf(events: FileEvents, at: number): EventDetails {
  const { about, kind, laneOfRow, row } = events;
  const { links, left } = linksOf(events, at);
  // GPU work has the stack of its launch; a backward operator the modules of its forward operator.
  const launch = links.find((link) => link.leads_here && link.kind === "launch")?.event;
  const origin = launch ? events.place(launch.number) : at;
  const stack = [...stackOf(events, origin), ...(launch ? [launch.name] : [])];
  const id = events.id[at] ?? 0;
  const isOperator = kind[at] === about.kinds.operator;
  return {
    ...{ state: "ready", error: undefined, progress: 1 },
    event: eventAt(events, at),
    track: about.lanes[laneOfRow[row[at] ?? 0] ?? 0]?.title ?? "",
    module: moduleOf(about.module_prefix, stack) || moduleOfForward(events, origin),
    stack,
    correlation: id > 0 && !isOperator ? String(id) : "",
    external_id: id > 0 && isOperator ? String(id) : "",
    ...argumentsOf(events, at),
    links,
    links_left_out: left,
  };
}

function argumentsOf(events: FileEvents, at: number) {
  const { details } = events.about;
  const which = events.detail[at] ?? 0;
  const text = (name: "shapes" | "types" | "settings") => textOf(events, details[name][which]);
  const figure = (
    name: "bytes" | "blocks" | "warps_per_block" | "registers" | "shared_bytes" | "blocks_per_sm",
  ) => Math.max(0, details[name][which] ?? 0);
  return {
    ...{ shapes: text("shapes"), types: text("types"), settings: text("settings") },
    bytes: figure("bytes"),
    blocks: figure("blocks"),
    warps_per_block: figure("warps_per_block"),
    registers: figure("registers"),
    shared_bytes: figure("shared_bytes"),
    blocks_per_sm: figure("blocks_per_sm"),
  };
}

/** This event, and those that enclose it, innermost first. */
function lineOf({ parent }: FileEvents, at: number): number[] {
  const found: number[] = [];
  for (let next = at; next !== NONE; next = parent[next] ?? NONE) found.push(next);
  return found;
}

/** Names of what encloses an event, innermost last. Operators of old traces carry their stack. */
function stackOf(events: FileEvents, at: number): string[] {
  const { about, name, detail } = events;
  const frames: string[] = [];
  for (const event of lineOf(events, at).slice(0, about.most.frames + 1)) {
    if (event !== at) frames.push(textOf(events, name[event]));
    const carried = about.details.stack[detail[event] ?? 0] ?? NONE;
    if (carried === NONE) continue;
    const parts = textOf(events, carried).split(";");
    frames.push(...parts.map((part) => part.trim()).filter((part) => part !== ""));
    break;
  }
  return frames.slice(0, about.most.frames).reverse();
}

/** The innermost module of a stack, or "". */
function moduleOf(prefix: string, stack: readonly string[]): string {
  return stack.findLast((frame) => frame.startsWith(prefix))?.slice(prefix.length) ?? "";
}

/** The module of the forward operator whose backward is this event, or the nearest that encloses it. */
function moduleOfForward(events: FileEvents, at: number): string {
  const { about, links, number } = events;
  const kind = about.link_kinds.indexOf("backward");
  for (const event of lineOf(events, at)) {
    const found = links.second.findIndex(
      (second, link) => second === number[event] && links.kind[link] === kind,
    );
    if (found === NONE) continue;
    const forward = events.place(links.first[found] ?? NONE);
    return forward === NONE ? "" : moduleOf(about.module_prefix, stackOf(events, forward));
  }
  return "";
}

/** The links of an event, and how many more there are. */
function linksOf(events: FileEvents, at: number): { links: EventLink[]; left: number } {
  const { about, links, number } = events;
  const own = number[at] ?? NONE;
  const here: number[] = [];
  const there: number[] = [];
  for (let link = 0; link < links.first.length; link++) {
    if (links.second[link] === own) here.push(link);
    if (links.first[link] === own) there.push(link);
  }
  if (events.kind[at] === about.kinds.operator) there.push(...linksOfCallsIn(events, at));
  const all = [
    ...here.map((link) => ({ link, other: links.first[link], leads_here: true })),
    ...there.map((link) => ({ link, other: links.second[link], leads_here: false })),
  ];
  const found = all.slice(0, about.most.links).flatMap(({ link, other, leads_here }): EventLink[] => {
    const place = events.place(other ?? NONE);
    const kind = about.link_kinds[links.kind[link] ?? 0];
    return place === NONE || !kind ? [] : [{ kind, leads_here, event: eventAt(events, place) }];
  });
  return { links: found, left: all.length - found.length };
}

/** Links from the calls in an operator to the work that they launch. */
function linksOfCallsIn(events: FileEvents, operator: number): number[] {
  const { about, links, number } = events;
  const launch = about.link_kinds.indexOf("launch");
  const after = Array.from(links.first.keys()).filter(
    (link) => (links.first[link] ?? 0) > (number[operator] ?? 0) && links.kind[link] === launch,
  );
  after.sort((a, b) => (links.first[a] ?? 0) - (links.first[b] ?? 0));
  return after.slice(0, about.most.calls).filter((link) => {
    const call = events.place(links.first[link] ?? NONE);
    return call !== NONE && lineOf(events, call).slice(1).includes(operator);
  });
}
