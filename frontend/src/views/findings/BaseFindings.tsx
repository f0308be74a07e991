import { plural } from "../../base/format";
import type { FindingChange } from "../../state/base";
import { savedShort } from "../../state/gain";
import type { Finding } from "../../wire/report";
import { ExplainButton } from "../rule/ExplainButton";

interface MarkProps {
  readonly finding: Finding;
  readonly change: FindingChange | undefined;
}

/** Whether the base has the finding, and what its fix saves there if that differs. */
export function ChangedMark({ finding, change }: MarkProps) {
  if (!change) return <span className="gd-base-finding">also in the base</span>;
  if (change.isNew || !change.before) return <span className="gd-base-finding">new</span>;
  const before = savedShort(change.before);
  const known = before !== "" && before !== savedShort(finding);
  return <span className="gd-base-finding">changed{known && <>, base: {before}</>}</span>;
}

/** Findings that only the base has. */
export function GoneList({ findings }: { findings: readonly Finding[] }) {
  if (findings.length === 0) return null;
  return (
    <div className="gd-base-gone">
      <b>Gone since the base: {plural(findings.length, "finding")}</b>
      <ul>
        {findings.map((finding, at) => (
          <li key={at}>
            {finding.title} <span className="gd-muted">{savedShort(finding)}</span>{" "}
            <ExplainButton rule={finding.rule} />
          </li>
        ))}
      </ul>
    </div>
  );
}
