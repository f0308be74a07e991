import type { Report, TraceEntry } from "../../wire/report";

/** What each view of one trace gets. */
export interface ReportProps {
  readonly entry: TraceEntry;
  readonly report: Report;
}
