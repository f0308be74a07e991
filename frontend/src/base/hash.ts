// Deep links: TensorBoard keeps "#<tab>&p.<tab>.<key>=<value>" across reloads, tab switches, back and forward.

import { notesOf, notesText, type Note } from "./notes";

const TAB = "gpudiag";
const PREFIX = `p.${TAB}.`;

/** The views of one trace. */
export type TraceViewName = "summary" | "timeline" | "operators" | "host" | "memory" | "recording";

/** The views of the page, in the order of their tabs. */
export const VIEWS = [
  "runs",
  "summary",
  "timeline",
  "operators",
  "host",
  "memory",
  "job",
  "history",
  "compare",
  "recording",
] as const;

export type ViewName = (typeof VIEWS)[number];

export interface Link {
  readonly view?: ViewName;
  /** The trace that a comparison starts from. */
  readonly base?: string;
  readonly trace?: string;
  readonly finding?: string;
  /** What the table of runs is filtered by. */
  readonly filter?: string;
  readonly start_us?: number;
  readonly end_us?: number;
  /** The row that is shown on the timeline, and which of its places, from 1. */
  readonly row?: string;
  readonly place?: number;
  /** The device whose memory is seen, as recorded: -1 is the host. */
  readonly memory?: number;
  /** A range that was drawn. */
  readonly from_us?: number;
  readonly to_us?: number;
  /** Are the tables of calls those of this range? */
  readonly within?: boolean;
  /** The gap that is opened: its device, and its number in the device's gaps lane. */
  readonly gap?: { readonly device: number; readonly gap: number };
  /** What users wrote at moments of the trace. */
  readonly notes?: readonly Note[];
  /** The number of the event whose details are shown. */
  readonly event?: number;
}

function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined; // a broken escape in a pasted link
  }
}

function number(text: string | undefined): number | undefined {
  if (text === undefined || text.trim() === "") return undefined;
  const value = Number(text);
  return Number.isFinite(value) ? value : undefined;
}

/** The view, what is selected by name, and the notes. */
function selected(found: ReadonlyMap<string, string>): Link {
  const view = VIEWS.find((name) => name === found.get("view"));
  const trace = found.get("trace");
  const base = found.get("base");
  const finding = found.get("finding");
  const filter = found.get("filter");
  const notes = notesOf(found.get("notes") ?? "");
  return {
    ...(view ? { view } : {}),
    ...(trace ? { trace } : {}),
    ...(base ? { base } : {}),
    ...(finding ? { finding } : {}),
    ...(filter ? { filter } : {}),
    ...(found.get("in") === "range" ? { within: true } : {}),
    ...(notes.length > 0 ? { notes } : {}),
  };
}

/** A gap as links name it: "0.17". */
function gapOf(text: string | undefined): Link["gap"] {
  const found = /^(\d{1,9})\.(\d{1,9})$/.exec(text ?? "");
  return found ? { device: Number(found[1]), gap: Number(found[2]) } : undefined;
}

function eventOf(text: string | undefined): Pick<Link, "event"> {
  return /^\d{1,10}$/.test(text ?? "") ? { event: Number(text) } : {};
}

/** What a link says. Whatever is missing, broken or makes no sense is left out. */
export function readHash(hash: string): Link {
  const found = new Map<string, string>();
  for (const token of hash.replace(/^#/, "").split("&")) {
    const [key = "", value = ""] = token.split("=");
    if (!key.startsWith(PREFIX)) continue;
    const text = decode(value);
    if (text !== undefined) found.set(key.slice(PREFIX.length), text);
  }
  const start_us = number(found.get("t0"));
  const end_us = number(found.get("t1"));
  const row = found.get("row");
  const place = number(found.get("place"));
  const memory = number(found.get("memory"));
  const from_us = number(found.get("s0"));
  const to_us = number(found.get("s1"));
  const gap = gapOf(found.get("gap"));
  const event = eventOf(found.get("event"));
  return {
    ...selected(found),
    ...(start_us !== undefined && end_us !== undefined && start_us < end_us ? { start_us, end_us } : {}),
    ...(row && place !== undefined && Number.isInteger(place) && place > 0 ? { row, place } : {}),
    ...(memory !== undefined && Number.isInteger(memory) ? { memory } : {}),
    ...(from_us !== undefined && to_us !== undefined && from_us < to_us ? { from_us, to_us } : {}),
    ...(gap ? { gap } : {}),
    ...event,
  };
}

/** Can this page write the hash, or does another tab own it now? */
export function isOurs(hash: string): boolean {
  const tab = hash.replace(/^#/, "").split("&")[0] ?? "";
  return tab === "" || tab === TAB;
}

/** `hash` with this page's part replaced by `link`; what other plugins keep there stays. */
export function writeHash(hash: string, link: Link): string {
  const others = hash
    .replace(/^#/, "")
    .split("&")
    .slice(1)
    .filter((token) => token !== "" && !token.startsWith(PREFIX));
  const own: [string, string | undefined][] = [
    ["view", link.view],
    ["trace", link.trace],
    ["base", link.base],
    ["finding", link.finding],
    ["filter", link.filter],
    ["t0", link.start_us?.toFixed(3)],
    ["t1", link.end_us?.toFixed(3)],
    ["row", link.row],
    ["place", link.place?.toFixed(0)],
    ["memory", link.memory?.toFixed(0)],
    ["s0", link.from_us?.toFixed(3)],
    ["s1", link.to_us?.toFixed(3)],
    ["in", link.within ? "range" : undefined],
    ["event", link.event?.toFixed(0)],
    ["notes", link.notes && notesText(link.notes)],
    ["gap", link.gap && `${link.gap.device}.${link.gap.gap}`],
  ];
  const tokens = own.flatMap(([key, value]) =>
    value ? [`${PREFIX}${key}=${encodeURIComponent(value)}`] : [],
  );
  return `#${[TAB, ...others, ...tokens].join("&")}`;
}
