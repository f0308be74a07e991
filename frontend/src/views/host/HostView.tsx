import { tableOf } from "../../base/tables";
import { Compilations } from "../compilations/Compilations";
import { Launches } from "../launches/Launches";
import type { ReportProps } from "../parts/reportProps";
import { ReportTable } from "../parts/ReportTable";

/** What the host did: launches and how far they were ahead, waits for the GPU, and the main thread's time. */
export default function HostView({ report }: ReportProps) {
  const empty = !tableOf(report, "host") && !tableOf(report, "synchronizations");
  return (
    <>
      {empty && report.launch_hotspots.length === 0 && !report.compile_log && (
        <p className="gd-nothing">The recording has no launches and nothing else of the host.</p>
      )}
      <Launches report={report} />
      <ReportTable report={report} id="synchronizations" about="synchronization" />
      <Compilations report={report} />
      <ReportTable report={report} id="host" />
    </>
  );
}
