import type { ReportProps } from "../parts/reportProps";
import { Timeline } from "./Timeline";

/** The timeline as a view of its own. */
export default function TimelineView({ entry }: ReportProps) {
  return <Timeline entry={entry} />;
}
