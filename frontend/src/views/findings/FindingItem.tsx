import { useEffect, useId, useRef, type ReactNode } from "react";
import { SEVERITIES } from "../../base/vocabulary";
import { window_us } from "../../state/account";
import { costText, costsMemory, saysRate, withoutRate } from "../../state/findings";
import { confidenceOf, gainOf, inColumn, ownPlace, savedLater, savedShort } from "../../state/gain";
import { usePage } from "../../state/store";
import { exportAddress, isEmbedded } from "../../wire/client";
import type { Finding, Report } from "../../wire/report";
import { CodeBlock } from "../parts/CodeBlock";
import { ExternalLink } from "../parts/ExternalLink";
import { PlaceName } from "../parts/PlaceName";
import { ShowOnTimeline } from "../parts/ShowOnTimeline";
import { fromTorch } from "../recording/parts";
import { ExplainButton } from "../rule/ExplainButton";
import { Places } from "./Places";

interface Props {
  readonly id: string;
  readonly finding: Finding;
  readonly opened: boolean;
  /** Its place in the order of fixes. */
  readonly number?: number;
  /** The step after this fix and those before it; empty if the replay has nothing to say about it. */
  readonly after?: string;
  /** The report of the finding; null if the page does not show its trace, so that there is nowhere to go. */
  readonly report: Report | null;
  /** How it differs from the base. */
  readonly mark?: ReactNode;
}

export function FindingItem({ id, finding, opened, number, after, report, mark }: Props) {
  const toggle = usePage((page) => page.toggleFinding);
  const body = useId();
  const item = useRef<HTMLLIElement>(null);
  const where = ownPlace(finding.places);

  // Scroll to a finding that was opened from elsewhere, by a link or the plan.
  useEffect(() => {
    if (opened) item.current?.scrollIntoView({ block: "nearest" });
  }, [opened]);

  return (
    <li className="gd-finding" data-severity={finding.severity} data-opened={opened || undefined} ref={item}>
      <button
        type="button"
        className="gd-finding-head"
        aria-expanded={opened}
        aria-controls={body}
        onClick={() => toggle(id)}
      >
        {number !== undefined && <span className="gd-finding-number">{number}</span>}
        <span className="gd-severity" title={SEVERITIES[finding.severity].explanation}>
          {SEVERITIES[finding.severity].word}
        </span>
        <span className="gd-finding-title">
          <b>{withoutRate(finding.title)}</b>
          {where && <PlaceName place={where.own} />}
          {mark}
        </span>
        <span className="gd-saved">{saysRate(report?.verdict, finding) ? "" : savedShort(finding)}</span>
        {after !== undefined && <span className="gd-after">{after && `→ ${inColumn(after)}`}</span>}
        <span className="gd-chevron" aria-hidden="true" />
      </button>
      <div className="gd-finding-links">
        {opened && <ExplainButton rule={finding.rule} />}
        {report &&
          (costsMemory(finding) ? <ShowInMemory finding={finding} /> : <ShowOnTimeline of={finding} />)}
      </div>
      {opened && (
        <div className="gd-finding-body" id={body}>
          <Details finding={finding} report={report} />
        </div>
      )}
    </li>
  );
}

function Details({ finding, report }: Pick<Props, "finding" | "report">) {
  return (
    <>
      <div className="gd-finding-left">
        <p className="gd-summary">{finding.summary}</p>
        {finding.evidence.length > 0 && (
          <table className="gd-evidence">
            <caption>Evidence</caption>
            <tbody>
              {finding.evidence.map((item, at) => (
                <tr key={at}>
                  <th scope="row">{item.label}</th>
                  <td>{item.value}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
        <Places places={finding.places} />
      </div>
      <div className="gd-finding-right">
        <SavingLine finding={finding} report={report} />
        <FixPart finding={finding} />
        {costsMemory(finding) && finding.ranges.length > 0 && (
          <p className="gd-muted">
            On the timeline: <ShowOnTimeline of={finding} />
          </p>
        )}
        {report && <Dispute finding={finding} report={report} />}
      </div>
    </>
  );
}

/** What the finding costs, what a fix saves, and how sure that is. */
function SavingLine({ finding, report }: Pick<Props, "finding" | "report">) {
  const whole_us = report ? window_us(report) : 0;
  const cost = costText(finding, whole_us);
  const gain = gainOf(finding.saving);
  const saved = savedShort(finding);
  const later = report ? savedLater(report, finding) : "";
  if (!cost && !saved) return null;
  return (
    <dl className="gd-saving">
      {cost && <Figure name="Costs" value={cost.amount} more={cost.of} />}
      {saved && !gain && <Figure name="A fix" value={saved} more="" />}
      {gain && (
        <Figure name="Gain" value={`${gain.before} → ${gain.after}`} more={`${gain.of}, ${gain.share}`} />
      )}
      {later && (
        <Figure name="After the fixes above" value="" more={`it ${later}, and alone what the gain says.`} />
      )}
      <Figure name="Confidence" value="" more={confidenceOf(finding, report?.plan)} />
    </dl>
  );
}

function Figure({ name, value, more }: { name: string; value: string; more: string }) {
  if (value === "" && more === "") return null;
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        {value && <b>{value}</b>} <span>{more}</span>
      </dd>
    </div>
  );
}

function FixPart({ finding }: Pick<Props, "finding">) {
  const fix = finding.fix;
  if (!fix) return null;
  return (
    <div className="gd-fix">
      <h3>Fix</h3>
      <p>{fix.text}</p>
      {fix.code && <CodeBlock code={fix.code} label={`fix for ${finding.rule}`} />}
      {fix.url && <ExternalLink url={fix.url}>{fix.url.replace(/^https:\/\//, "")}</ExternalLink>}
    </div>
  );
}

/** Makes a small file about this finding, to attach to an issue. */
function Dispute({ finding, report }: { finding: Finding; report: Report }) {
  const trace = usePage((page) => page.trace);
  if (trace === null || isEmbedded() || report.trace?.kind !== "trace" || !fromTorch(report)) return null;
  return (
    <p className="gd-muted">
      <a
        className="gd-link"
        download
        href={exportAddress(trace, "dispute", finding.rule)}
        title="Download a small file for an issue: the events around this finding, without credentials. Nothing is sent."
      >
        Wrong diagnosis?
      </a>
    </p>
  );
}

/** Shows a finding about memory in the memory view. */
function ShowInMemory({ finding }: Pick<Props, "finding">) {
  const showMemoryOf = usePage((page) => page.showMemoryOf);
  return (
    <span className="gd-stepper">
      <button
        type="button"
        className="gd-link"
        title="Show in the memory view"
        aria-label={`Show in the memory view: ${finding.title}`}
        onClick={() => showMemoryOf(finding.memory_device)}
      >
        Show
      </button>
    </span>
  );
}
