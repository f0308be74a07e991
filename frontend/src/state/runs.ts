// The table of runs: its search and order, which stay while other views are open.

import { create } from "zustand";
import { percent, time } from "../base/format";
import { limiterWord } from "../base/limiters";
import type { Order } from "../base/sorting";
import type { CauseTime, RunRow, TraceEntry_State } from "../wire/report";
import { rank } from "../base/causes";
import type { Part } from "./account";
import { matches } from "./choose";
import { kindText } from "./kinds";

interface RunsState {
  readonly search: string;
  readonly order: Order;
  /** How far the table is scrolled, in pixels. */
  readonly top: number;
  /** Whether the runs are grouped by folder; null: if several folders have several runs. */
  readonly grouped: boolean | null;
  /** Folders whose runs are hidden. */
  readonly folded: ReadonlySet<string>;
  /** Whether new runs are analyzed in the background. */
  readonly analyzing: boolean;
}

/** A folder with runs, as a line of the table. */
export interface Folder {
  readonly folder: string;
  readonly runs: number;
  /** The most that a fix saves in one of its runs. */
  readonly saving_share: number;
  readonly folded: boolean;
}

export type Line = RunRow | Folder;

export function isFolder(line: Line): line is Folder {
  return "folder" in line;
}

export const useRunsTable = create<RunsState>()(() => ({
  search: "",
  order: { by: "saving", descending: true },
  top: 0,
  grouped: null,
  folded: new Set(),
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
    const saving_share = inside.reduce((most, row) => Math.max(most, row.saving_share), 0);
    const head = { folder, runs: inside.length, saving_share, folded: hidden };
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
  new: "not analyzed yet",
  ranks: "one rank analyzed",
  queued: "waiting for analysis",
  running: "being analyzed",
  failed: "cannot be diagnosed",
  ready: "",
};

/** "CUDA memory snapshot", "job · not analyzed yet". */
export function aboutRun({ kind, state }: RunRow): string {
  const parts = [kindText(kind), STATES[state]];
  return parts.filter((part) => part !== "").join(" · ");
}

/** The most that fixing the first finding saves, and the step after that; null if it saves no time. */
export function gainOfRow({ saving_share, step_us }: RunRow): { share: string; after: string } | null {
  if (saving_share <= 0) return null;
  const after_us = step_us * (1 - saving_share);
  return { share: percent(saving_share), after: after_us > 0 ? time(after_us) : "" };
}

/** Return the rows that contain every word of the search, the newest first. */
export function filteredRuns(rows: readonly RunRow[], search: string): RunRow[] {
  return rows
    .filter((row) => {
      const { run, worker, kind, first_rule, first_title, change } = row;
      const text = [run, worker, kind, limiterText(row), first_rule, first_title, change, aboutRun(row)];
      return matches(text.join(" "), search);
    })
    .sort((a, b) => b.time_s - a.time_s);
}
