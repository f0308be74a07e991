import { useState } from "react";
import { Findings } from "../findings/Findings";
import { Notice } from "../parts/Notice";
import type { ReportProps } from "../parts/reportProps";
import { EngineSteps } from "../serving/EngineSteps";
import { Steps } from "../steps/Steps";
import { useAgainst } from "../../state/base";
import { onlyMemory, onlyRecord } from "../../state/kinds";
import { Account } from "./Account";
import { HostAccount } from "./HostAccount";
import { MemoryFigures } from "./MemoryFigures";
import { Peak } from "./Peak";
import { Verdict } from "./Verdict";

/** What limits the job, what to fix first and what it brings, where the time went, and the other findings. */
export default function Summary({ entry, report }: ReportProps) {
  const [chosen, setChosen] = useState(0);
  const against = useAgainst(entry);
  const device = report.devices[chosen] ?? report.devices[0];
  const record = onlyRecord(entry.kind);
  return (
    <>
      {record && (
        <Notice tone="info">
          The trace was not kept: this is the record that the training job left. It has no timeline, operators
          or kernels.
        </Notice>
      )}
      <div className="gd-top">
        <Verdict entry={entry} report={report} />
        {device ? (
          <Account report={report} device={device} onChoose={setChosen} against={against} />
        ) : onlyMemory(report.trace?.kind) || record ? (
          <MemoryFigures report={report} linked={!record} />
        ) : (
          <HostAccount report={report} against={against} />
        )}
      </div>
      {device && record && <MemoryFigures report={report} linked={false} />}
      <EngineSteps report={report} />
      <Findings report={report} against={against} />
      <Peak mfu={report.mfu} />
      {device && <Steps report={report} device={device} />}
    </>
  );
}
