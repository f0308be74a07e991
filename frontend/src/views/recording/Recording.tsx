import { About } from "../about/About";
import type { ReportProps } from "../parts/reportProps";

/** The file: what it contains, and what was skipped or repaired. */
export default function Recording({ report }: ReportProps) {
  return <About report={report} />;
}
