import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { bytes } from "../../base/format";
import { TRACES } from "../../state/queries";
import { usePage } from "../../state/store";
import { cancelAnalysis } from "../../wire/client";
import type { ReportState, TraceEntry } from "../../wire/report";
import { ProgressCard } from "./ProgressCard";

interface Props {
  readonly entry: TraceEntry;
  readonly state: ReportState | undefined;
  /** When the state was loaded. */
  readonly at_ms: number;
  /** The page still shows the report of an earlier version of the file. */
  readonly again: boolean;
}

export function Analyzing({ entry, state, at_ms, again }: Props) {
  const left = useTimeLeft(state, at_ms);
  const stop = usePage((page) => page.stop);
  const client = useQueryClient();
  const cancel = async () => {
    stop(entry.id);
    try {
      await cancelAnalysis(entry.id);
    } finally {
      client.removeQueries({ queryKey: ["report", entry.id] });
      await client.invalidateQueries({ queryKey: TRACES });
    }
  };
  return (
    <ProgressCard
      title={title(entry, state, again)}
      detail={[bytes(entry.size_bytes), state?.stage, left].filter(Boolean).join(" · ")}
      share={state?.progress ?? 0}
      onCancel={() => void cancel()}
    />
  );
}

/** Before, too little is known to say how long the rest takes. */
const TOLD_AFTER_S = 2;
const TOLD_FROM = 0.15;

/** "about 8 s left", from how far the analysis has come since the page began to watch it. Nothing if it would be more
 *  than was said before: then neither is true. */
function useTimeLeft(state: ReportState | undefined, at_ms: number): string {
  const [least_s, setLeast] = useState(Infinity);
  const [first, setFirst] = useState<{ readonly at_ms: number; readonly share: number } | null>(null);
  const running = state?.state === "running" && !state.report;
  const share = state?.progress ?? 0;
  if (running && !first) setFirst({ at_ms, share });
  if (!running || !first) return "";
  const [done, took_s] = [share - first.share, (at_ms - first.at_ms) / 1000];
  if (took_s < TOLD_AFTER_S || done < TOLD_FROM) return "";
  const left_s = Math.ceil((took_s * (1 - share)) / done);
  if (left_s < least_s) setLeast(left_s);
  return left_s > least_s
    ? ""
    : `about ${left_s > 99 ? `${Math.ceil(left_s / 60)} min` : `${left_s} s`} left`;
}

function title(entry: TraceEntry, state: ReportState | undefined, again: boolean): string {
  if (entry.writing && !entry.content) return "Waiting for the file to be written";
  if (state?.state === "queued") return "Waiting";
  if (state?.report) return "Verdict ready. Loading timeline and tables…";
  return again ? "The file has changed. Analyzing it again" : "Analyzing this trace";
}
