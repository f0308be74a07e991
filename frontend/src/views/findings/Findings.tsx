import { plural } from "../../base/format";
import { window_us } from "../../state/account";
import { findingKeys } from "../../state/findings";
import { usePage } from "../../state/store";
import type { Report } from "../../wire/report";
import { Section } from "../parts/Section";
import { FindingItem } from "./FindingItem";
import { Plan } from "./Plan";
import { CheckedList, UncheckedList } from "./Others";

/** The findings in the report's order, worst first. Then the rules that could not check, and those without a finding. */
export function Findings({ report }: { report: Report }) {
  const opened = usePage((page) => page.finding);
  const keys = findingKeys(report.findings);
  const whole_us = window_us(report);
  const several = keys.length > 1;
  return (
    <Section
      title="Findings"
      about="finding"
      aside={
        <span className="gd-muted">
          {plural(keys.length, "finding")}
          {several && ", worst first"}
        </span>
      }
    >
      {report.findings.length === 0 && <p className="gd-nothing">No problem found.</p>}
      {report.plan && <Plan plan={report.plan} findings={report.findings} keys={keys} />}
      <ol className="gd-findings">
        {report.findings.map((finding, at) => {
          const key = keys[at] ?? finding.rule;
          return (
            <FindingItem key={key} id={key} finding={finding} whole_us={whole_us} opened={opened === key} />
          );
        })}
      </ol>
      <UncheckedList items={report.unchecked} opened={report.findings.length === 0} />
      <CheckedList items={report.clear} />
    </Section>
  );
}
