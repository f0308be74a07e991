import { plural } from "../../base/format";
import { findingChanges, findingName, type Against } from "../../state/base";
import { findingKeys, isHint } from "../../state/findings";
import { stepAfter, toFix } from "../../state/gain";
import { usePage } from "../../state/store";
import type { Report } from "../../wire/report";
import { Section } from "../parts/Section";
import { ChangedMark, GoneList } from "./BaseFindings";
import { FindingItem } from "./FindingItem";
import { BetterRecording, CheckedList, UncheckedList } from "./Others";

/** A single fix needs no order. */
const LEAST_PLANNED = 2;

/** The findings in the order to fix them. Then the rules without a finding, and what the recording lacks. */
export function Findings({ report, against }: { report: Report; against: Against | null }) {
  const opened = usePage((page) => page.finding);
  const keys = findingKeys(report.findings);
  const first = toFix(report);
  const counted = report.findings.flatMap((finding, at) => (isHint(finding) ? [] : [{ finding, at }]));
  // What to fix first is above, with its gain and code. Here it is opened for its evidence.
  const shown = counted.filter(({ finding, at }) => finding !== first || opened === keys[at]);
  const plan = report.plan && report.plan.fixes.length >= LEAST_PLANNED ? report.plan : null;
  const comparison = against?.comparison ?? null;
  const changes = findingChanges(comparison);
  const after = plan && stepAfter(report);
  return (
    <Section
      title={plan ? "Then, in this order" : titleOf(first !== null, counted.length)}
      about="finding"
      aside={
        <span className="gd-muted">
          {plan
            ? `Right column: ${plan.per_step ? "step" : "step window"} with fixes 1 to n (80% range)`
            : countOf(first ? counted.length - 1 : counted.length)}
        </span>
      }
    >
      <ol className="gd-findings" data-planned={plan ? true : undefined}>
        {shown.map(({ finding, at }) => {
          const key = keys[at] ?? finding.rule;
          return (
            <FindingItem
              key={key}
              id={key}
              number={counted.findIndex((other) => other.at === at) + 1}
              finding={finding}
              report={report}
              after={after?.get(at) ?? ""}
              opened={opened === key}
              mark={
                comparison && <ChangedMark finding={finding} change={changes.get(findingName(finding))} />
              }
            />
          );
        })}
      </ol>
      <GoneList findings={comparison?.findings?.gone ?? []} />
      <UncheckedList items={report.unchecked.filter(({ defect }) => defect)} title="Could not check" />
      <CheckedList items={report.clear} />
      <BetterRecording report={report} />
    </Section>
  );
}

/** Without findings, the card lists what was checked: the first card says that there is no problem. */
function titleOf(hasFirst: boolean, findings: number): string {
  if (hasFirst) return "Other findings";
  return findings > 0 ? "Findings" : "What was checked";
}

function countOf(findings: number): string {
  return findings > 0 ? plural(findings, "finding") : "";
}
