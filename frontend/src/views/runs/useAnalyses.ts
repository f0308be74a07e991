import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { BUSY_MS, isPending, RUNS } from "../../state/queries";
import { useRunsTable } from "../../state/runs";
import { usePage } from "../../state/store";
import { analyzeAhead, analyzeJobAhead } from "../../wire/client";
import type { RunRow } from "../../wire/report";

/**
 * The server drops analyses that nobody has asked about for a minute. And a file that is still being written stays
 * new: it is requested again, after the others.
 */
const ASK_AGAIN_MS = 20_000;

/** How often a job is asked for: each of its ranks, and then all together, are analyzed only if somebody asks. */
const ASK_FOR_JOB_MS = BUSY_MS;

export interface Analyses {
  readonly on: boolean;
  /** Runs without an analyzed recording. */
  readonly left: number;
  readonly toggle: () => void;
  /** How long they take, in seconds, by those that have ended while the table was open; null before some have. */
  readonly left_s: number | null;
}

/** Before, too little is known to say how long the rest takes. */
const TOLD_AFTER = 3;

/** So many wait at the server, so that it is never done before the page asks for more: a small one takes a tenth of a
 *  second. */
const AT_ONCE = 8;

/** Whether the run, or the job that it is, is not analyzed yet. */
function isNew({ state }: RunRow): boolean {
  return state === "new" || state === "ranks";
}

/** Differs between a run and the job whose first rank is analyzed. */
function requestOf({ state, trace_id }: RunRow): string {
  return `${state} ${trace_id}`;
}

/** The run to analyze next: one job at a time, as it is many analyses, and other runs do not wait for it. */
function nextOf(
  rows: readonly RunRow[],
  shown: readonly RunRow[],
  requested: ReadonlySet<string>,
  inJob: boolean,
): RunRow | undefined {
  if (rows.length === 0) return undefined; // they are not all there yet
  const isNext = (row: RunRow) =>
    (row.state === "new" || (isNew(row) && !inJob)) && !requested.has(requestOf(row));
  return shown.find(isNext) ?? rows.find(isNext);
}

/** How long the runs that are left take, in seconds, by those that have ended since the table was opened. */
function useTimeLeft(left: number, at_ms: number): number | null {
  const [first, setFirst] = useState<{ readonly at_ms: number; readonly left: number } | null>(null);
  if (left > (first?.left ?? 0)) setFirst({ at_ms, left });
  else if (left === 0 && first) setFirst(null);
  const ended = (first?.left ?? 0) - left;
  return first && ended >= TOLD_AFTER ? ((at_ms - first.at_ms) / 1000 / ended) * left : null;
}

/** Ask for the job until it is there or has failed, or the signal ends it. */
async function analyzeJob(id: string, signal: AbortSignal): Promise<void> {
  while (isPending((await analyzeJobAhead(id, signal)).state)) {
    await new Promise((resolve) => setTimeout(resolve, ASK_FOR_JOB_MS));
  }
}

/**
 * Analyzes the runs that are not analyzed yet while the page is visible: those that are `shown` first, in their order.
 * Some wait at the server; the next is asked for when one has ended. at_ms: when the rows were loaded.
 */
export function useAnalyses(rows: readonly RunRow[], shown: readonly RunRow[], at_ms: number): Analyses {
  const client = useQueryClient();
  const on = useRunsTable((table) => table.analyzing);
  const visible = usePage((page) => page.visible);
  const [round, setRound] = useState(0);
  const requested = useRef(new Set<string>());
  const job = useRef<AbortController>(null); // ends the wait for a job
  const pending = rows.filter(({ state }) => isPending(state)).map(({ trace_id }) => trace_id);
  const busy = pending.length >= AT_ONCE;

  useEffect(() => {
    if (!on) job.current?.abort();
    if (!on || !visible || busy) return;
    const next = nextOf(rows, shown, requested.current, job.current !== null);
    if (!next) return;
    requested.current.add(requestOf(next));
    // If the request fails, the table keeps showing the run as not analyzed.
    const wait = next.state === "ranks" ? new AbortController() : null;
    if (wait) job.current = wait;
    void (wait ? analyzeJob(next.trace_id, wait.signal) : analyzeAhead(next.trace_id))
      .catch(() => null)
      .then(() => {
        if (wait) job.current = null;
        return client.invalidateQueries({ queryKey: RUNS });
      });
  }, [on, visible, busy, rows, shown, round, client]);

  useEffect(() => () => job.current?.abort(), []);

  const asked = pending.join(" ");
  const left = rows.filter((row) => isNew(row) || isPending(row.state)).length;
  const left_s = useTimeLeft(on ? left : 0, at_ms);
  useEffect(() => {
    if (!on || !visible || left === 0) return;
    const timer = window.setInterval(() => {
      if (asked === "") {
        requested.current.clear();
        setRound((number) => number + 1);
      }
      for (const id of asked.split(" "))
        if (requested.current.has(`new ${id}`)) void analyzeAhead(id).catch(() => null);
    }, ASK_AGAIN_MS);
    return () => window.clearInterval(timer);
  }, [on, visible, asked, left]);

  return {
    on,
    left,
    left_s,
    toggle: () => {
      requested.current.clear();
      useRunsTable.setState({ analyzing: !on });
    },
  };
}
