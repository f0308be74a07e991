import { useEffect, useId, useRef } from "react";
import { term, word } from "../../base/terms";
import { SEVERITIES } from "../../base/vocabulary";
import { costText, costsMemory, savingText } from "../../state/findings";
import { usePage } from "../../state/store";
import type { Finding } from "../../wire/report";
import { CodeBlock } from "../parts/CodeBlock";
import { ExternalLink } from "../parts/ExternalLink";
import { ShowOnTimeline } from "../parts/ShowOnTimeline";
import { ExplainButton } from "../rule/ExplainButton";
import { Places } from "./Places";

interface Props {
  readonly id: string;
  readonly finding: Finding;
  readonly whole_us: number;
  readonly opened: boolean;
  /** False if the page does not show the trace of the finding, so that there is nowhere to go. */
  readonly linked?: boolean;
}

export function FindingItem({ id, finding, whole_us, opened, linked = true }: Props) {
  const toggle = usePage((page) => page.toggleFinding);
  const body = useId();
  const item = useRef<HTMLLIElement>(null);
  const cost = costText(finding, whole_us);

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
        onClick={() => {
          toggle(id);
        }}
      >
        <span className="gd-severity" title={term(SEVERITIES, finding.severity)?.explanation}>
          {word(SEVERITIES, finding.severity)}
        </span>
        <span className="gd-finding-title">
          <b>{finding.title}</b>
          <span>{finding.summary}</span>
        </span>
        <span className="gd-cost">
          {cost && (
            <>
              <b>{cost.amount}</b>
              <span>{cost.of}</span>
            </>
          )}
        </span>
        <span className="gd-chevron" aria-hidden="true" />
      </button>
      <div className="gd-finding-links">
        <ExplainButton rule={finding.rule} />
        {linked &&
          (costsMemory(finding) ? <ShowInMemory finding={finding} /> : <ShowOnTimeline of={finding} />)}
      </div>
      {opened && (
        <div className="gd-finding-body" id={body}>
          <Details finding={finding} />
        </div>
      )}
    </li>
  );
}

function Details({ finding }: Pick<Props, "finding">) {
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
        <SavingLine finding={finding} />
        <FixPart finding={finding} />
        {costsMemory(finding) && finding.ranges.length > 0 && (
          <p className="gd-muted">
            On the timeline: <ShowOnTimeline of={finding} />
          </p>
        )}
      </div>
    </>
  );
}

function SavingLine({ finding }: Pick<Props, "finding">) {
  const saving = savingText(finding);
  if (!saving) return null;
  return (
    <p className="gd-saving">
      <span>A fix saves</span> <b>{saving.range}</b> <span>({saving.share})</span>
      {saving.basis && <span className="gd-basis">{saving.basis}</span>}
    </p>
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
        onClick={() => {
          showMemoryOf(finding.memory_device);
        }}
      >
        Show
      </button>
    </span>
  );
}
