import { Button, Progress } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { bytes, percent } from "../../base/format";
import { TRACES } from "../../state/queries";
import { usePage } from "../../state/store";
import { cancelAnalysis } from "../../wire/client";
import type { ReportState, TraceEntry } from "../../wire/report";

interface Props {
  readonly entry: TraceEntry;
  readonly state: ReportState | undefined;
  /** The page still shows the report of an earlier version of the file. */
  readonly again: boolean;
}

export function Analyzing({ entry, state, again }: Props) {
  const stop = usePage((page) => page.stop);
  const client = useQueryClient();
  const share = state?.progress ?? 0;
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
    <div className="gd-analyzing" role="status" data-again={again || undefined}>
      <div>
        <b>{title(entry, state, again)}</b>
        <span className="gd-muted">
          {bytes(entry.size_bytes)}
          {state?.stage ? ` · ${state.stage}` : ""}
        </span>
        <span className="gd-analyzing-share">{share > 0 ? percent(share) : ""}</span>
        <Button size="compact-xs" variant="default" onClick={() => void cancel()}>
          Cancel
        </Button>
      </div>
      <Progress value={100 * share} size="sm" animated={share > 0} aria-label="Analysis progress" />
    </div>
  );
}

function title(entry: TraceEntry, state: ReportState | undefined, again: boolean): string {
  if (entry.writing && !entry.content) return "Waiting for the file to be written";
  if (state?.state === "queued") return "Waiting for a free worker";
  return again ? "The file has changed. Analyzing it again" : "Analyzing this trace";
}
