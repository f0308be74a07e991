import { useQueryClient } from "@tanstack/react-query";
import { bytes } from "../../base/format";
import { TRACES } from "../../state/queries";
import { usePage } from "../../state/store";
import { cancelAnalysis } from "../../wire/client";
import type { ReportState, TraceEntry } from "../../wire/report";
import { ProgressCard } from "./ProgressCard";

interface Props {
  readonly entry: TraceEntry;
  readonly state: ReportState | undefined;
  /** The page still shows the report of an earlier version of the file. */
  readonly again: boolean;
}

export function Analyzing({ entry, state, again }: Props) {
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
      detail={[bytes(entry.size_bytes), state?.stage].filter(Boolean).join(" · ")}
      share={state?.progress ?? 0}
      onCancel={() => void cancel()}
    />
  );
}

function title(entry: TraceEntry, state: ReportState | undefined, again: boolean): string {
  if (entry.writing && !entry.content) return "Waiting for the file to be written";
  if (state?.state === "queued") return state.stage ? "Waiting" : "Waiting for a free worker";
  return again ? "The file has changed. Analyzing it again" : "Analyzing this trace";
}
