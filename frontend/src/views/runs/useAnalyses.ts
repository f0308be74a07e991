import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { isPending, RUNS } from "../../state/queries";
import { fetchReport } from "../../wire/client";
import type { RunRow } from "../../wire/report";

interface Analyses {
  readonly on: boolean;
  /** Runs without an analyzed recording. */
  readonly left: number;
  readonly toggle: () => void;
}

/** Analyzes the runs that are not analyzed yet, one at a time and the newest first, until stopped. */
export function useAnalyses(rows: readonly RunRow[]): Analyses {
  const client = useQueryClient();
  const [on, setOn] = useState(false);
  // A file that is still being written stays new. It is not requested again.
  const requested = useRef(new Set<string>());
  const left = rows.filter(({ state }) => state === "new");
  useEffect(() => {
    if (!on || rows.some(({ state }) => isPending(state))) return;
    const next = rows
      .filter(({ state, trace_id }) => state === "new" && !requested.current.has(trace_id))
      .reduce<RunRow | null>((best, row) => (best && best.time_s >= row.time_s ? best : row), null);
    if (!next) return;
    requested.current.add(next.trace_id);
    // If the request fails, the table keeps showing the run as not analyzed.
    void fetchReport(next.trace_id)
      .catch(() => null)
      .then(() => client.invalidateQueries({ queryKey: RUNS }));
  }, [on, rows, client]);
  return {
    on: on && left.length > 0,
    left: left.length,
    toggle: () => {
      requested.current.clear();
      setOn(!on);
    },
  };
}
