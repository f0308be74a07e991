// The table of runs: its search and order, which stay while other views are open.

import { create } from "zustand";
import type { Order } from "../base/sorting";
import { term } from "../base/terms";
import { LIMITERS } from "../base/vocabulary";
import type { CauseTime, RunRow } from "../wire/report";
import { rank } from "../base/causes";
import type { Part } from "./account";
import { matches } from "./choose";
import { kindText } from "./kinds";

interface RunsState {
  readonly search: string;
  readonly order: Order;
  /** How far the table is scrolled, in pixels. */
  readonly top: number;
}

export const useRunsTable = create<RunsState>()(() => ({
  search: "",
  order: { by: "saving", descending: true },
  top: 0,
}));

/** Order times by cause as in every legend, without those of 0. */
export function partsOf(times: readonly CauseTime[]): Part[] {
  return times
    .filter(({ us }) => us > 0)
    .map(({ cause, us }) => ({ name: cause, us }))
    .sort((a, b) => rank(a.name) - rank(b.name));
}

export function limiterText(limiter: string): string {
  return term(LIMITERS, limiter)?.word ?? limiter;
}

const STATES: Readonly<Record<string, string>> = {
  new: "not analyzed yet",
  queued: "waiting for analysis",
  running: "being analyzed",
  failed: "cannot be diagnosed",
};

/** "CUDA memory snapshot", "job · not analyzed yet". */
export function aboutRun({ kind, state }: RunRow): string {
  const parts = [kind === "job" ? "job" : kindText(kind), STATES[state] ?? ""];
  return parts.filter((part) => part !== "").join(" · ");
}

/** Return the rows that contain every word of the search, the newest first. */
export function filteredRuns(rows: readonly RunRow[], search: string): RunRow[] {
  return rows
    .filter((row) => {
      const { run, worker, kind, limiter, first_rule, first_title, change } = row;
      const text = [run, worker, kind, limiterText(limiter), first_rule, first_title, change, aboutRun(row)];
      return matches(text.join(" "), search);
    })
    .sort((a, b) => b.time_s - a.time_s);
}
