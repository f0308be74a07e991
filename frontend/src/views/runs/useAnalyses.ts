import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { isPending, RUNS } from "../../state/queries";
import { useRunsTable } from "../../state/runs";
import { usePage } from "../../state/store";
import { fetchReport } from "../../wire/client";
import type { RunRow } from "../../wire/report";

/** The server drops analyses that nobody has asked about for a minute. */
const ASK_AGAIN_MS = 20_000;

interface Analyses {
  readonly on: boolean;
  /** Runs without an analyzed recording. */
  readonly left: number;
  readonly toggle: () => void;
}

/**
 * Analyzes the runs that are not analyzed yet while the page is visible: one at a time, the newest first, and none
 * while another analysis runs.
 */
export function useAnalyses(rows: readonly RunRow[]): Analyses {
  const client = useQueryClient();
  const on = useRunsTable((table) => table.analyzing);
  const visible = usePage((page) => page.visible);
  // A file that is still being written stays new. It is not requested again.
  const requested = useRef(new Set<string>());
  const pending = rows.find(({ state }) => isPending(state))?.trace_id;

  useEffect(() => {
    if (!on || !visible || pending !== undefined) return;
    const next = rows
      .filter(({ state, trace_id }) => state === "new" && !requested.current.has(trace_id))
      .reduce<RunRow | null>((best, row) => (best && best.time_s >= row.time_s ? best : row), null);
    if (!next) return;
    requested.current.add(next.trace_id);
    // If the request fails, the table keeps showing the run as not analyzed.
    void fetchReport(next.trace_id)
      .catch(() => null)
      .then(() => client.invalidateQueries({ queryKey: RUNS }));
  }, [on, visible, pending, rows, client]);

  useEffect(() => {
    if (!on || !visible || pending === undefined || !requested.current.has(pending)) return;
    const timer = window.setInterval(() => {
      void fetchReport(pending).catch(() => null);
    }, ASK_AGAIN_MS);
    return () => {
      window.clearInterval(timer);
    };
  }, [on, visible, pending]);

  return {
    on,
    left: rows.filter(({ state }) => state === "new" || isPending(state)).length,
    toggle: () => {
      requested.current.clear();
      useRunsTable.setState({ analyzing: !on });
    },
  };
}
