import { HostActivities } from "../host/HostActivities";
import { Kernels } from "../kernels/Kernels";
import { Launches } from "../launches/Launches";
import type { ReportProps } from "../parts/reportProps";
import { Synchronizations } from "../synchronizations/Synchronizations";

/** Time by operator, kernel and host activity. */
export default function Operators({ report }: ReportProps) {
  return (
    <>
      <Launches report={report} />
      <Synchronizations report={report} />
      <Kernels report={report} />
      <HostActivities report={report} />
    </>
  );
}
