import type { ReportProps } from "../parts/reportProps";
import { Memory } from "./Memory";

/** Memory as a view of its own. */
export default function MemoryView({ entry, report }: ReportProps) {
  return <Memory entry={entry} report={report} />;
}
