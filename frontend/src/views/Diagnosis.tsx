import { useMemo } from "react";
import { costsMemory } from "../state/findings";
import { onlyMemory } from "../state/kinds";
import { rowPlaces } from "../state/rowPlaces";
import type { Report, TraceEntry } from "../wire/report";
import { About } from "./about/About";
import { Findings } from "./findings/Findings";
import { HostActivities } from "./host/HostActivities";
import { Kernels } from "./kernels/Kernels";
import { Launches } from "./launches/Launches";
import { Memory } from "./memory/Memory";
import { RowPlacesProvider } from "./parts/ShowOnTimeline";
import { Steps } from "./steps/Steps";
import { Timeline } from "./timeline/Timeline";
import { Verdict } from "./verdict/Verdict";
import { Synchronizations } from "./synchronizations/Synchronizations";

/** The whole report, from the summary to the details. */
export function Diagnosis({ entry, report }: { entry: TraceEntry; report: Report }) {
  const known = useMemo(() => rowPlaces(report), [report]);
  const memory = onlyMemory(report.trace?.kind);
  const onlyHost = report.devices.length === 0;
  // If the worst finding is about memory, show memory before the timeline.
  const memoryFirst = report.findings[0] !== undefined && costsMemory(report.findings[0]);
  return (
    <RowPlacesProvider value={known}>
      <div className="gd-top">
        <Verdict report={report} />
        {onlyHost ? <HostActivities report={report} /> : <Steps report={report} />}
      </div>
      <Findings report={report} />
      {memoryFirst && <Memory entry={entry} report={report} />}
      {!memory && <Timeline entry={entry} />}
      <Launches report={report} />
      <Synchronizations report={report} />
      <Kernels report={report} />
      {!onlyHost && <HostActivities report={report} />}
      {!memoryFirst && <Memory entry={entry} report={report} />}
      <About report={report} />
    </RowPlacesProvider>
  );
}
