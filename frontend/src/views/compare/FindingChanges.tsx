import { plural } from "../../base/format";
import type { Comparison, Finding } from "../../wire/report";
import { FindingList } from "../findings/FindingList";
import { Section } from "../parts/Section";

/** Findings that only one of the two has, and those that cost more or less. */
export function FindingChanges({ comparison: { findings } }: { comparison: Comparison }) {
  if (!findings) return null;
  const changed = findings.changed.flatMap(({ candidate }) => (candidate ? [candidate] : []));
  return (
    <Section title="Findings">
      <Group title="New" about="in the candidate only" prefix="new-" findings={findings.new} />
      <Group title="Gone" about="in the base only" prefix="gone-" findings={findings.gone} />
      <Group title="In both" about="as the candidate has them" prefix="both-" findings={changed} />
      {findings.new.length + findings.gone.length + changed.length === 0 && (
        <p className="gd-nothing">Neither recording has a finding.</p>
      )}
    </Section>
  );
}

interface GroupProps {
  readonly title: string;
  readonly about: string;
  readonly prefix: string;
  readonly findings: readonly Finding[];
}

function Group({ title, about, prefix, findings }: GroupProps) {
  if (findings.length === 0) return null;
  return (
    <>
      <h3 className="gd-group">
        {title} <span className="gd-muted">{`${plural(findings.length, "finding")} ${about}`}</span>
      </h3>
      <FindingList findings={findings} prefix={prefix} />
    </>
  );
}
