import { Findings } from "../findings/Findings";
import { HostActivities } from "../host/HostActivities";
import type { ReportProps } from "../parts/reportProps";
import { Steps } from "../steps/Steps";
import { Verdict } from "../verdict/Verdict";

/** What limits the job, where its time went, and what to fix first. */
export default function Summary({ report }: ReportProps) {
  return (
    <>
      <div className="gd-top">
        <Verdict report={report} />
        {report.devices.length === 0 ? <HostActivities report={report} /> : <Steps report={report} />}
      </div>
      <Findings report={report} />
    </>
  );
}
