import { Button } from "@mantine/core";
import type { ReactNode } from "react";
import { bytes, plural } from "../../base/format";
import { ordered } from "../../base/sorting";
import { cellText, sortValue, tableOf } from "../../base/tables";
import { costsMemory, findingKeys, isHint, saysRate, withoutRate } from "../../state/findings";
import {
  confidenceOf,
  firstBlock,
  gainOf,
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

interface Props {
  readonly report: Report;
  readonly hasMemoryView: boolean;
}

/** What to fix first: how, and what it brings. The verdict says where. */
export function First({ report, hasMemoryView }: Props) {
  const finding = toFix(report);
  const openFinding = usePage((page) => page.openFinding);
  if (!finding) return <Healthy report={report} />;
  const key = findingKeys(report.findings)[report.findings.indexOf(finding)] ?? finding.rule;
  const where = ownPlace(finding.places);
  const { fix } = finding;
  return (
    <div className="gd-first" data-severity={finding.severity}>
      <div className="gd-first-title">
        <h2>
          {headOf(finding)}: {saysRate(report.verdict, finding) ? withoutRate(finding.title) : finding.title}
        </h2>
        <span className="gd-buttons">
          <ShowOnTimeline of={finding} />
          {hasMemoryView && <ShowMemory of={finding} report={report} />}
          <ExplainButton rule={finding.rule} />
        </span>
      </div>
      <dl>
        {where?.inside && (
          <Row name="Through">
            <PlaceName place={where.inside} />
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
      <Button size="compact-xs" variant="default" onClick={() => openFinding(key)}>
        Evidence, all places and code
      </Button>
    </div>
  );
}

/** The way to the curve and the lines of a finding about memory. */
function ShowMemory({ of, report }: { of: Finding; report: Report }) {
  const showMemoryOf = usePage((page) => page.showMemoryOf);
  const { memory_device: device } = of;
  if (!costsMemory(of) || !report.memory.some((memory) => memory.device === device)) return null;
  return (
    <button type="button" className="gd-link" onClick={() => showMemoryOf(device)}>
      Show the memory
    </button>
  );
}

/** Families of kernels that are named. */
const FAMILIES_NAMED = 3;

/** Nothing to fix: what still bounds the job, and how far the measured kernels are from the hardware. */
function Healthy({ report }: { report: Report }) {
  const { clear, unchecked } = report;
  const families = largestFamilies(report);
  const hints = report.findings.filter((finding) => !isHint(finding));
  return (
    <div className="gd-first-none">
      <p>
        <b>
          {clear.length >= unchecked.length
            ? "No problem found."
            : `${plural(clear.length, "rule")} could check this trace, and found no problem.`}
        </b>
      </p>
      {families.length > 0 && <p>What the GPU ran, as shares of the step window: {families.join(", ")}.</p>}
      {families.length > 0 && hints.length === 0 && (
        <p className="gd-muted">
          {report.trace?.recorded?.shapes
            ? "No family of kernels is far from what the hardware can do: the roofline in Operators shows each."
            : "How close the kernels come to the hardware's limits is unknown: record with record_shapes=True."}
        </p>
      )}
    </div>
  );
}

/** Families of kernels of the busiest GPU with their shares of the step window, the largest first. */
function largestFamilies(report: Report): string[] {
  const table = tableOf(report, "kernel_families");
  const [names, shares] = ["family", "kernel_share"].map((id) =>
    table?.columns.find((each) => each.id === id),
  );
  if (!table || !names || !shares) return [];
  const rows = table.rows.slice(0, table.first).map((_, at) => at);
  return ordered(rows, (at) => sortValue(shares, at), true)
    .slice(0, FAMILIES_NAMED)
    .map((at) => `${cellText(names, at)} ${cellText(shares, at)}`);
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
  const gain = gainOf(finding.saving);
  const memory = report.memory.find(({ device }) => device === finding.memory_device);
  const overhead = overheadOf(finding);
  const confidence = confidenceOf(finding, report.plan, memory);
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
      {finding.cost_bytes > 0 && (
        <Row name={finding.cost_bytes_per_step > 0 ? "Leaked" : "Gain"}>
          {finding.cost_bytes_per_step > 0 ? (
            `${bytes(finding.cost_bytes)} still live at the end`
          ) : (
            <b className="gd-gain">{savedShort(finding)}</b>
          )}
        </Row>
      )}
      {confidence && <Row name="Confidence">{confidence}</Row>}
      {overhead && <Row name="Recording">itself takes an estimated {overhead}</Row>}
    </>
  );
}
