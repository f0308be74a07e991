// The ranks of a job as the page shows them: matrices for the heat maps, and sentences about clocks and ranks.

import { rank as orderOf } from "../base/causes";
import { count, figures, plural, time } from "../base/format";
import type { Clocks, JobRank, JobReport, JobStep } from "../wire/report";
import { accountParts } from "./account";

/** Values by row and column. */
export interface Matrix {
  readonly columns: readonly string[];
  /** By rank, as in the job's ranks. */
  readonly values: readonly (readonly number[])[];
}

/** Return the share of each rank's step window by cause. Causes that no rank has are left out. */
export function causeShares(ranks: readonly JobRank[]): Matrix {
  const parts = ranks.map((rank) => new Map(accountParts(rank).map(({ name, us }) => [name, us])));
  const columns = [...new Set(parts.flatMap((found) => [...found.keys()]))].sort(
    (a, b) => orderOf(a) - orderOf(b),
  );
  const values = ranks.map(({ window_us }, at) =>
    columns.map((name) => (window_us > 0 ? (parts[at]?.get(name) ?? 0) / window_us : 0)),
  );
  return { columns, values };
}

/** Return the time that each rank waits for others, by step. */
export function stepWaiting(ranks: readonly JobRank[], steps: readonly JobStep[]): Matrix {
  return {
    columns: steps.map(({ name }) => name),
    values: ranks.map((_, at) => steps.map(({ rank_waiting_us }) => rank_waiting_us[at] ?? 0)),
  };
}

export function clocksText(clocks: Clocks | undefined): string {
  switch (clocks?.basis) {
    case "ONE_HOST":
      return "one host, one clock";
    case "COLLECTIVES":
      return `aligned by collectives, to within ${time(clocks.residual_us)}`;
    default:
      return "cannot be compared";
  }
}

/** "Ranks 3, 5 and 12 more are missing.", or "" if none is. */
export function missingText({ missing, missing_ranks: some, world_size }: JobReport): string {
  if (missing === 0) return "";
  const shown = some.slice(0, 12);
  const more = missing - shown.length;
  const names = shown.join(", ") + (more > 0 ? ` and ${count(more)} more` : "");
  const all = world_size > 0 ? `The job has ${plural(world_size, "rank")}. ` : "";
  return `${all}${missing === 1 ? "Rank" : "Ranks"} ${names} ${
    missing === 1 ? "is" : "are"
  } missing: all figures are about the other ranks.`;
}

export interface Slower {
  readonly name: string;
  /** How many times as long the job takes because of it. */
  readonly s: number;
}

/** Return what slows the job, the worst first, without what makes no difference. */
export function slowers(by: Readonly<Record<string, number>>, label: (key: string) => string): Slower[] {
  return Object.entries(by)
    .map(([key, s]) => ({ name: label(key), s }))
    .filter(({ s }) => s > LEAST_SLOWDOWN)
    .sort((a, b) => b.s - a.s);
}

/** A slowdown below 0.05% shows as 1.00, which is no slowdown. */
const LEAST_SLOWDOWN = 1.0005;

/** A rate as it is read: "12.3 GB/s", "" if it is not known. */
export function rateText(gb_per_s: number): string {
  if (gb_per_s <= 0) return "";
  return `${figures(gb_per_s)}\u00a0GB/s`;
}
