// The table of runs: its search and order, which stay while other views are open.

import { create } from "zustand";
import { count, ordinal, percent, plural, timeBeside } from "../base/format";
import { limiterWord } from "../base/limiters";
import type { Order } from "../base/sorting";
import type { CauseTime, RunRow, TraceEntry_State } from "../wire/report";
import { rank } from "../base/causes";
import type { Part } from "./account";
import { matches } from "./choose";
import { between } from "./gain";
import { kindText } from "./kinds";

interface RunsState {
  /** The run that was opened last: its row gets the focus when the table is shown again. */
  readonly opened: string | null;
  readonly order: Order;
  /** How far the table is scrolled, in pixels. */
  readonly top: number;
  /** Whether the runs are grouped by folder; null: if several folders have several runs. */
  readonly grouped: boolean | null;
  /** Folders whose runs are hidden. */
  readonly folded: ReadonlySet<string>;
  /** The run that is checked, to compare the next one with. */
  readonly base: RunRow | null;
  /** Whether new runs are analyzed in the background. */
  readonly analyzing: boolean;
}

/** A folder with runs, as a line of the table. */
export interface Folder {
  readonly folder: string;
  readonly runs: number;
  /** How bad the worst finding in its runs is; NaN if none was found. */
  readonly severity: number;
  readonly folded: boolean;
}

export type Line = RunRow | Folder;

export function isFolder(line: Line): line is Folder {
  return "folder" in line;
}

export const useRunsTable = create<RunsState>()(() => ({
  opened: null,
  order: { by: "severity", descending: true },
  top: 0,
  grouped: null,
  folded: new Set(),
  base: null,
  analyzing: true,
}));

/** The folder of a run: its path without the last part. Empty for runs in the log directory itself. */
function folderOf(run: string): string {
  return run.slice(0, Math.max(0, run.lastIndexOf("/")));
}

/** Group sorted rows by folder. Folders are in the order of their first rows. */
export function groupedRuns(rows: readonly RunRow[], folded: ReadonlySet<string>): Line[] {
  const folders = new Map<string, RunRow[]>();
  for (const row of rows) {
    const others = folders.get(folderOf(row.run));
    if (others) others.push(row);
    else folders.set(folderOf(row.run), [row]);
  }
  return [...folders].flatMap(([folder, inside]): Line[] => {
    const hidden = folded.has(folder);
    const severities = inside.map(severityOf).filter((severity) => !Number.isNaN(severity));
    const severity = severities.length > 0 ? Math.max(...severities) : NaN;
    const head = { folder, runs: inside.length, severity, folded: hidden };
    return hidden ? [head] : [head, ...inside];
  });
}

/** Hide the runs of a folder, or show them again. */
export function foldRuns(folder: string): void {
  useRunsTable.setState(({ folded }) => ({
    folded: folded.has(folder)
      ? new Set([...folded].filter((other) => other !== folder))
      : new Set([...folded, folder]),
  }));
}

/** Order times by cause as in every legend, without those of 0. */
export function partsOf(times: readonly CauseTime[]): Part[] {
  return times
    .filter(({ us }) => us > 0)
    .map(({ cause, us }) => ({ name: cause, us }))
    .sort((a, b) => rank(a.name) - rank(b.name));
}

/** What limits a run, in words; "" if that is not known. */
export function limiterText({ limiter, busy_share }: RunRow): string {
  return limiter !== "unknown" ? limiterWord(limiter, busy_share > 0) : "";
}

const STATES: Readonly<Record<TraceEntry_State, string>> = {
  new: "not analyzed",
  ranks: "one rank analyzed",
  queued: "waiting for analysis",
  running: "being analyzed",
  failed: "cannot be diagnosed",
  ready: "",
};

/** What is said of each run that waits, by id, while runs are analyzed: "3rd of 53 in the queue". rows: in the order in
 *  which they are analyzed; the server has taken some. */
export function queuePlaces(rows: readonly RunRow[]): ReadonlyMap<string, string> {
  const waiting = [
    ...rows.filter(({ state }) => state === "queued"),
    ...rows.filter(({ state }) => state === "new"),
  ];
  return new Map(
    waiting.map(({ id }, at) => [id, `${ordinal(at + 1)} of ${count(waiting.length)} in the queue`]),
  );
}

/** "CUDA memory snapshot", "not analyzed · job · 8 ranks · 3 recordings". place: in the queue, if it is known. */
export function aboutRun({ kind, state, ranks, recordings }: RunRow, place = ""): string {
  const parts = [
    place || STATES[state],
    kindText(kind),
    ranks > 1 ? plural(ranks, "rank") : "",
    recordings > 1 ? plural(recordings, "recording") : "",
  ];
  return parts.filter((part) => part !== "").join(" · ");
}

/** How bad the worst finding is; -1 if there is none, NaN if the run is not analyzed. */
export function severityOf({ state, first_rule, first_title, severity }: RunRow): number {
  if (state !== "ready") return NaN;
  // What holds up a job that hangs has a title, and no rule.
  return first_rule === "" && first_title === "" ? -1 : severity;
}

/** What fixing the first finding saves, and the step after that; null if it saves no time. */
export function gainOfRow(row: RunRow): { share: string; after: string } | null {
  const { low_saving_share: low, saving_share: high, unprofiled_step_us: step_us } = row;
  if (high <= 0) return null;
  const after = (share: number) => timeBeside(step_us * (1 - share), step_us);
  return {
    share: low > 0 ? between(percent(low), percent(high)) : `at most ${percent(high)}`,
    after:
      step_us <= 0 || high >= 1 ? "" : low > 0 ? between(after(high), after(low)) : `${after(high)} at best`,
  };
}

/** From the most urgent row to the least: tb_gpudiag/report/essentials.py has its twin. */
function byUrgency(a: RunRow, b: RunRow): number {
  const keys = ["low_saving_share", "growth_bytes_per_step", "saving_share", "time_s"] as const;
  const parts = (row: RunRow) => [row.severity, Number(endsJob(row)), ...keys.map((key) => row[key])];
  const [of_a, of_b] = [parts(a), parts(b)];
  return of_a.map((part, i) => (of_b[i] ?? 0) - part).find((difference) => difference !== 0) ?? 0;
}

/** Finding.Severity.ERROR, as rows have it. */
const ERROR = 2;

/** Memory that runs out ends the job, whatever else is slow. */
function endsJob({ severity, first_rule }: RunRow): boolean {
  return severity === ERROR && first_rule.startsWith("GD4");
}

export interface Worst {
  readonly row: RunRow;
  /** How many runs are analyzed. */
  readonly of: number;
}

/** The most urgent of several analyzed runs, of rows in this order; null if nothing was found in them. */
export function worstOf(rows: readonly RunRow[]): Worst | null {
  const analyzed = rows.filter(({ state }) => state === "ready");
  const [row] = analyzed;
  if (!row?.why || analyzed.length < 2) return null;
  return { row, of: analyzed.length };
}

/** Return the rows that contain every word of the search, the most urgent first. */
export function filteredRuns(rows: readonly RunRow[], search: string): RunRow[] {
  return rows
    .filter((row) => {
      const { run, worker, kind, first_rule, first_title, change } = row;
      const text = [run, worker, kind, limiterText(row), first_rule, first_title, change, aboutRun(row)];
      return matches(text.join(" "), search);
    })
    .sort(byUrgency);
}
