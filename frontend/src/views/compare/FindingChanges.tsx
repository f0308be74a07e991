import { plural } from "../../base/format";
import type { Comparison, Finding, FindingChange } from "../../wire/report";
import { FindingList } from "../findings/FindingList";
import { Section } from "../parts/Section";
import { ExplainButton } from "../rule/ExplainButton";

/** Findings that only one of the two has, and those that cost more or less. */
export function FindingChanges({ comparison: { findings } }: { comparison: Comparison }) {
  if (!findings) return null;
  return (
    <Section title="Findings">
      <Group title="New" note="in the candidate only" prefix="new-" findings={findings.new} />
      <Group title="Gone" note="in the base only" prefix="gone-" findings={findings.gone} />
      <Changed changes={findings.changed} />
      {findings.new.length + findings.gone.length + findings.changed.length === 0 && (
        <p className="gd-nothing">Neither recording has a finding.</p>
      )}
    </Section>
  );
}

interface GroupProps {
  readonly title: string;
  readonly note: string;
  readonly prefix: string;
  readonly findings: readonly Finding[];
}

function Group({ title, note, prefix, findings }: GroupProps) {
  if (findings.length === 0) return null;
  return (
    <>
      <h3 className="gd-group">
        {title} <span className="gd-muted">{`${plural(findings.length, "finding")} ${note}`}</span>
      </h3>
      <FindingList findings={findings} prefix={prefix} />
    </>
  );
}

/** Findings that both have, with the title from each side: the titles contain the figures. */
function Changed({ changes }: { changes: readonly FindingChange[] }) {
  if (changes.length === 0) return null;
  return (
    <table className="gd-plain gd-both">
      <caption>
        <h3 className="gd-group">
          Changed <span className="gd-muted">{plural(changes.length, "finding")} in both</span>
        </h3>
      </caption>
      <thead>
        <tr>
          <th scope="col">Rule</th>
          <th scope="col">In the base</th>
          <th scope="col">In the candidate</th>
        </tr>
      </thead>
      <tbody>
        {changes.map(({ base, candidate }, at) => (
          <tr key={at}>
            <th scope="row">
              <ExplainButton rule={candidate?.rule ?? base?.rule ?? ""} />
            </th>
            <td>{base?.title}</td>
            <td>{candidate?.title}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
