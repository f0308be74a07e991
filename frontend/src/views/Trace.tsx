import { Button } from "@mantine/core";
import { useState } from "react";
import type { TraceViewName } from "../base/hash";
import { isPending, useReport } from "../state/queries";
import { usePage } from "../state/store";
import type { Report, TraceEntry } from "../wire/report";
import { Notice } from "./parts/Notice";
import { Analyzing } from "./status/Analyzing";
import { Problem } from "./status/Problem";
import { TraceView } from "./TraceView";

interface Props {
  readonly open: TraceViewName;
  readonly entry: TraceEntry;
}

/** One trace: its report, the progress of the analysis, or the reason why there is no report. */
export function Trace({ open, entry }: Props) {
  const stopped = usePage((page) => page.stopped.has(entry.id));
  const resume = usePage((page) => page.resume);
  const { data, error, dataUpdatedAt } = useReport(entry, !stopped);
  // While a changed file is analyzed again, keep showing its previous report.
  const [report, setReport] = useState<Report | null>(null);
  if (data?.report && data.report !== report) setReport(data.report);

  const state = data?.state ?? "queued";
  return (
    <>
      {stopped && (
        <Notice
          tone="info"
          action={
            <Button size="compact-sm" onClick={() => resume(entry.id)}>
              Analyze
            </Button>
          }
        >
          The analysis of this trace was canceled.
        </Notice>
      )}
      {!stopped && isPending(state) && !error && (
        <Analyzing entry={entry} state={data} at_ms={dataUpdatedAt} again={report !== null} />
      )}
      {error && !stopped && <Notice tone="error">Could not load this report: {error.message}.</Notice>}
      {state === "failed" && data?.error && (
        <Problem title="This file cannot be diagnosed" problem={data.error} />
      )}
      {report && <TraceView open={open} entry={entry} report={report} />}
    </>
  );
}
