import { Button } from "@mantine/core";
import type { ReactNode } from "react";
import { bytes } from "../../base/format";
import { window_us } from "../../state/account";
import { costsMemory, findingKeys } from "../../state/findings";
import {
  confidenceOf,
  firstBlock,
  gainOf,
  growthOf,
  isAboutRecording,
  overheadOf,
  ownPlace,
  savedShort,
  toFix,
} from "../../state/gain";
import { usePage } from "../../state/store";
import { Finding_Severity, type Finding, type Report } from "../../wire/report";
import { CodeBlock } from "../parts/CodeBlock";
import { PlaceName } from "../parts/PlaceName";
import { ShowOnTimeline } from "../parts/ShowOnTimeline";
import { ExplainButton } from "../rule/ExplainButton";

/** What to fix first: where, how, and what it brings. */
export function First({ report }: { report: Report }) {
  const finding = toFix(report);
  const openFinding = usePage((page) => page.openFinding);
  if (!finding) return <p className="gd-first-none">No problem found.</p>;
  const key = findingKeys(report.findings)[report.findings.indexOf(finding)] ?? finding.rule;
  const where = ownPlace(finding.places);
  const { fix } = finding;
  return (
    <div className="gd-first" data-severity={finding.severity}>
      <div className="gd-first-title">
        <h2>
          {headOf(finding)}: {finding.title}
        </h2>
        <span className="gd-buttons">
          <ShowOnTimeline of={finding} />
          <ExplainButton rule={finding.rule} />
        </span>
      </div>
      <dl>
        {where && (
          <Row name="Where">
            <PlaceName place={where.own} />
            {where.inside && (
              <span className="gd-first-inside">
                in <PlaceName place={where.inside} />
              </span>
            )}
          </Row>
        )}
        {fix && (
          <Row name="Fix">
            <p>{fix.text}</p>
            {fix.code && <CodeBlock code={firstBlock(fix.code)} label={`first fix for ${finding.rule}`} />}
          </Row>
        )}
        <GainRow finding={finding} report={report} />
      </dl>
      <Button
        size="compact-xs"
        variant="default"
        onClick={() => {
          openFinding(key);
        }}
      >
        Evidence, all places and code
      </Button>
    </div>
  );
}

function headOf(finding: Finding): string {
  if (isAboutRecording(finding)) return "Record next";
  return finding.severity === Finding_Severity.INFO ? "Worth a try" : "Fix first";
}

function Row({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function GainRow({ finding, report }: { finding: Finding; report: Report }) {
  const gain = gainOf(finding.saving, window_us(report));
  const memory = report.memory.find(({ device }) => device === finding.memory_device);
  const overhead = overheadOf(finding);
  const confidence = costsMemory(finding)
    ? memory
      ? growthOf(memory)
      : ""
    : confidenceOf(finding, report.plan);
  return (
    <>
      {gain && (
        <Row name="Gain">
          <b className="gd-gain">
            {gain.before} → {gain.after}
          </b>{" "}
          {gain.of} <span className="gd-muted">{gain.share}</span>
        </Row>
      )}
      {costsMemory(finding) && (
        <Row name="Gain">
          <b className="gd-gain">{savedShort(finding)}</b>{" "}
          {finding.cost_bytes > 0 && finding.cost_bytes_per_step > 0 && (
            <span className="gd-muted">{bytes(finding.cost_bytes)} still live at the end</span>
          )}
        </Row>
      )}
      {confidence && <Row name="Confidence">{confidence}</Row>}
      {overhead && <Row name="Recording">takes {overhead} itself</Row>}
    </>
  );
}
