// The traces to choose from, by run, worker and span.

import { date } from "../base/format";
import type { RunRow, TraceEntry } from "../wire/report";

/** Traces grouped by name, in the server's order. */
export type Named = ReadonlyMap<string, readonly TraceEntry[]>;

interface Chosen {
  readonly runs: Named;
  /** Workers of the chosen run. */
  readonly workers: Named;
  /** Traces of the chosen worker. */
  readonly spans: readonly TraceEntry[];
}

/** Return the lists for the three selectors while `entry` is selected, in the server's order. */
export function levels(traces: readonly TraceEntry[], entry: TraceEntry | null): Chosen {
  const runs = grouped(traces, ({ run }) => run);
  const workers = grouped(runs.get(entry?.run ?? "") ?? [], ({ worker }) => worker);
  return { runs, workers, spans: workers.get(entry?.worker ?? "") ?? [] };
}

function grouped(traces: readonly TraceEntry[], name: (entry: TraceEntry) => string): Named {
  const found = new Map<string, TraceEntry[]>();
  for (const entry of traces) {
    const others = found.get(name(entry));
    if (others) others.push(entry);
    else found.set(name(entry), [entry]);
  }
  return found;
}

/** Return the newest readable file, or the newest file if none is readable. */
export function newest(traces: readonly TraceEntry[]): TraceEntry | null {
  const readable = traces.filter((entry) => entry.state !== "failed");
  return (readable.length > 0 ? readable : traces).reduce<TraceEntry | null>(
    (best, entry) => (best === null || entry.modified_s > best.modified_s ? entry : best),
    null,
  );
}

/** Return the newest file of `run`, from the same worker as before if the run has it. */
export function inRun(traces: readonly TraceEntry[], run: string, worker?: string): TraceEntry | null {
  const all = traces.filter((entry) => entry.run === run);
  const same = all.filter((entry) => entry.worker === worker);
  return newest(same.length > 0 ? same : all);
}

/**
 * Return what to show instead of a recording that is gone: the newest one of its worker or run, else of all; one that
 * is not complete only if there is no other.
 */
export function insteadOf(traces: readonly TraceEntry[], gone: TraceEntry | null): TraceEntry | null {
  const complete = traces.filter(({ writing }) => !writing);
  const ofRun = gone && (inRun(complete, gone.run, gone.worker) ?? inRun(traces, gone.run, gone.worker));
  return ofRun ?? newest(complete) ?? newest(traces);
}

/** Return the later recordings of the same worker that can be read, the newest first. */
export function newerThan(traces: readonly TraceEntry[], shown: TraceEntry): TraceEntry[] {
  return traces
    .filter(
      ({ run, worker, state, modified_s }) =>
        run === shown.run && worker === shown.worker && state !== "failed" && modified_s > shown.modified_s,
    )
    .sort((a, b) => b.modified_s - a.modified_s);
}

export interface LikelyBase {
  readonly base: TraceEntry;
  /** Why both may be of one job; empty if nothing speaks for that. */
  readonly why: string;
}

/** Of the costliest operators with their shapes, this share is in both runs of one job. A fix changes some. */
const SAME_WORK = 0.5;

/** Return the runs whose costliest operators have the same input shapes as those of `run`. */
export function sameWork(rows: readonly RunRow[], run: string): ReadonlySet<string> {
  const own = new Set(rows.find((row) => row.run === run)?.work);
  const alike = rows.filter(({ run: name, work }) => {
    const fewer = Math.min(own.size, work.length);
    return name !== run && fewer > 0 && work.filter((code) => own.has(code)).length >= SAME_WORK * fewer;
  });
  return new Set(alike.map(({ run: name }) => name));
}

/**
 * Return what a recording is most likely to be compared with: the one before it, or else a later one of its run; runs of
 * the same name but for its last part, as "resnet" and "resnet_fixed"; runs of the same folder or with the same shapes;
 * and then all others, those nearest in the tree of folders first.
 */
export function likelyBases(
  traces: readonly TraceEntry[],
  shown: TraceEntry,
  most: number,
  alike: ReadonlySet<string> = new Set(),
): readonly LikelyBase[] {
  const readable = traces.filter(({ id, state }) => id !== shown.id && state !== "failed");
  // Snapshots whose names say no rank are of one process: before and after.
  const alone = shown.kind === "snapshot" && !shown.of_rank;
  const same = readable.filter(
    ({ run, worker, of_rank }) => run === shown.run && (worker === shown.worker || (alone && !of_rank)),
  );
  const before = newest(same.filter(({ modified_s }) => modified_s <= shown.modified_s));
  const ofRun = before ?? newest(same);
  const runs = new Set(readable.map(({ run }) => run));
  runs.delete(shown.run);
  const others = [...runs].map((run) => inRun(readable, run, shown.worker)).filter((found) => found !== null);
  return [
    ...(ofRun
      ? [{ base: ofRun, why: `${before ? "the recording before" : "a later recording than"} this one` }]
      : []),
    ...others
      .map((base) => ({
        base,
        why: whyAlike(base.run, shown.run, alike),
        place: likeness(base.run, shown.run, alike),
      }))
      .sort(
        (a, b) =>
          a.place - b.place ||
          foldersShared(b.base.run, shown.run) - foldersShared(a.base.run, shown.run) ||
          b.base.modified_s - a.base.modified_s,
      )
      .map(({ base, why }) => ({ base, why })),
  ].slice(0, most);
}

/** The smaller, the likelier is one run to be compared with the other. */
function likeness(run: string, shown: string, alike: ReadonlySet<string>): number {
  if (isNamedAfter(run, shown)) return 0;
  if (isVariant(run, shown)) return 1;
  return whyAlike(run, shown, alike) === "" ? 3 : 2;
}

function whyAlike(run: string, shown: string, alike: ReadonlySet<string>): string {
  const reasons = [
    isVariant(run, shown) && "almost the same name",
    folderOf(run) !== "" && folderOf(run) === folderOf(shown) && "same folder",
    alike.has(run) && "same input shapes",
  ];
  return reasons.filter(Boolean).join(", ");
}

function folderOf(run: string): string {
  return run.slice(0, Math.max(0, run.lastIndexOf("/")));
}

/** How many folders two runs share: "job/before" and "job/after" one. */
function foldersShared(a: string, b: string): number {
  const others = b.split("/");
  return `${a}/`.split("/").findIndex((part, at) => part !== others[at]);
}

/** A name without its last part, or without its number. */
function stem(name: string): string {
  return name.replace(/[_.-][^/_.-]*$|[0-9]+$/, "");
}

/** Whether one of two runs is named after the other: "job" and "job_fixed". */
function isNamedAfter(a: string, b: string): boolean {
  return stem(a) === b || stem(b) === a;
}

/** Whether the names of two runs differ in their last part only: "workers_0" and "workers_4", too. */
function isVariant(a: string, b: string): boolean {
  return isNamedAfter(a, b) || (stem(a) !== a && stem(a) === stem(b));
}

/** The name of a run or folder for people: files in the log directory itself have none. */
export function runName(run: string): string {
  return run === "" || run === "." ? "Top level" : run;
}

/** Format a span. torch's trace handler writes the recording time, in ms or ns since 1970. Others use any name. */
export function spanLabel(span: string): string {
  if (!/^\d{12,20}$/.test(span)) return span || "–";
  const ms = Number(span) / 10 ** (span.length - 13);
  return date(ms / 1000);
}

/** Return true if the name contains every word of the search text, in any order and case. */
export function matches(name: string, search: string): boolean {
  const text = name.toLowerCase();
  return search
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}
