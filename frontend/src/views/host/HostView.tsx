import { Compilations } from "../compilations/Compilations";
import { Launches } from "../launches/Launches";
import type { ReportProps } from "../parts/reportProps";
import { Synchronizations } from "../synchronizations/Synchronizations";
import { HostActivities } from "./HostActivities";

/** What the host did: launches and how far they were ahead, waits for the GPU, and the main thread's time. */
export default function HostView({ report }: ReportProps) {
  const { launch_hotspots: launches, sync_sites: waits, host } = report;
  return (
    <>
      {launches.length + waits.length + host.length === 0 && !report.compile_log && (
        <p className="gd-nothing">The recording has no launches and nothing else of the host.</p>
      )}
      <Launches report={report} />
      <Synchronizations report={report} />
      <Compilations report={report} />
      <HostActivities report={report} />
    </>
  );
}
