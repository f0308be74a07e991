// Which views the log directory has something for.

import { VIEWS, type ViewName } from "../base/hash";
import type { TraceEntry } from "../wire/report";
import { levels } from "./choose";
import { hasEvents, onlyReport } from "./kinds";

/** Return the views to offer while `entry` is selected, in the order of their tabs. `open` is always one of them. */
export function viewsFor(
  traces: readonly TraceEntry[],
  entry: TraceEntry,
  open: ViewName,
): readonly ViewName[] {
  const { runs, workers } = levels(traces, entry);
  const ofSame = hasEvents(entry.kind)
    ? ({ kind }: TraceEntry) => hasEvents(kind)
    : ({ of_rank }: TraceEntry) => of_rank;
  const ranks = [...workers.values()].filter((spans) => spans.some(ofSame));
  const recordings = Math.max(...[...workers.values()].map((spans) => spans.length));
  const offered: Readonly<Record<ViewName, boolean>> = {
    runs: runs.size > 1,
    summary: true,
    timeline: hasEvents(entry.kind),
    operators: hasEvents(entry.kind),
    host: hasEvents(entry.kind),
    memory: !onlyReport(entry.kind),
    recording: !onlyReport(entry.kind),
    job: ranks.length > 1 && (hasEvents(entry.kind) || entry.of_rank),
    history: recordings > 1,
    compare: traces.length > 1 && !onlyReport(entry.kind),
  };
  return VIEWS.filter((view) => offered[view] || view === open);
}

/** Return the view to open when no link says which. */
export function firstView(traces: readonly TraceEntry[], wanted: string | null): ViewName {
  const several = new Set(traces.map(({ run }) => run)).size > 1;
  return wanted === null && several ? "runs" : "summary";
}

/** Return a text that changes whenever one of the files does. */
export function contentsOf(traces: readonly TraceEntry[]): string {
  return traces.map(({ content }) => content).join();
}
