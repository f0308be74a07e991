import { Button } from "@mantine/core";
import { useState } from "react";
import { isPending, useReport } from "../state/queries";
import { usePage } from "../state/store";
import type { Report, TraceEntry } from "../wire/report";
import { Diagnosis } from "./Diagnosis";
import { Notice } from "./parts/Notice";
import { Analysing } from "./status/Analysing";
import { Problem } from "./status/Problem";

/** One trace: its report, or how far it is, or why there is none. */
export function Trace({ entry }: { entry: TraceEntry }) {
  const stopped = usePage((page) => page.stopped.has(entry.id));
  const resume = usePage((page) => page.resume);
  const { data, error } = useReport(entry, !stopped);
  // While a file that has changed is analysed again, its earlier report stays.
  const [report, setReport] = useState<Report | null>(null);
  if (data?.report && data.report !== report) setReport(data.report);

  const state = data?.state ?? "queued";
  return (
    <>
      {stopped && (
        <Notice
          tone="info"
          action={
            <Button
              size="compact-sm"
              onClick={() => {
                resume(entry.id);
              }}
            >
              Analyse
            </Button>
          }
        >
          The analysis of this trace was cancelled.
        </Notice>
      )}
      {!stopped && isPending(state) && !error && (
        <Analysing entry={entry} state={data} again={report !== null} />
      )}
      {error && !stopped && (
        <Notice tone="error">The report of this trace could not be fetched: {error.message}.</Notice>
      )}
      {state === "failed" && data?.error && (
        <Problem title="This file cannot be diagnosed" problem={data.error} />
      )}
      {report && <Diagnosis entry={entry} report={report} />}
    </>
  );
}
