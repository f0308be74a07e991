import { lazy, Suspense, useMemo, type ComponentType } from "react";
import type { TraceViewName } from "../base/hash";
import { onlyReport } from "../state/kinds";
import { rowPlaces } from "../state/rowPlaces";
import type { ReportProps } from "./parts/reportProps";
import { RowPlacesProvider } from "./parts/ShowOnTimeline";
import { Waiting } from "./status/Waiting";

// Loaded when they are opened, so that the page appears as fast as without them.
const VIEWS: Readonly<Record<TraceViewName, ComponentType<ReportProps>>> = {
  summary: lazy(() => import("./summary/Summary")),
  timeline: lazy(() => import("./timeline/TimelineView")),
  operators: lazy(() => import("./operators/Operators")),
  host: lazy(() => import("./host/HostView")),
  memory: lazy(() => import("./memory/MemoryView")),
  recording: lazy(() => import("./recording/Recording")),
};

const ClockView = lazy(() => import("./clock/ClockView"));
const HangView = lazy(() => import("./hang/HangView"));

/** One view of a report. A record has enough for the Summary only, and a job that hangs and step clocks have views of their own. */
export function TraceView({ open, entry, report }: ReportProps & { readonly open: TraceViewName }) {
  const known = useMemo(() => rowPlaces(report), [report]);
  const own = report.hang ? HangView : report.clock ? ClockView : null;
  const View = own ?? VIEWS[onlyReport(entry.kind) ? "summary" : open];
  return (
    <RowPlacesProvider value={known}>
      <Suspense fallback={<Waiting>Loading…</Waiting>}>
        <View entry={entry} report={report} />
      </Suspense>
    </RowPlacesProvider>
  );
}
