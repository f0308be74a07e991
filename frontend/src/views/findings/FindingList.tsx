import { findingKeys } from "../../state/findings";
import { usePage } from "../../state/store";
import type { Finding } from "../../wire/report";
import { FindingItem } from "./FindingItem";

interface Props {
  readonly findings: readonly Finding[];
  /** Makes the keys of the findings unique where a view has several lists. */
  readonly prefix?: string;
}

/** Findings of other traces than the one on the page. */
export function FindingList({ findings, prefix = "" }: Props) {
  const opened = usePage((page) => page.finding);
  const keys = findingKeys(findings).map((key) => `${prefix}${key}`);
  return (
    <ol className="gd-findings">
      {findings.map((finding, at) => {
        const key = keys[at] ?? finding.rule;
        return <FindingItem key={key} id={key} finding={finding} opened={opened === key} report={null} />;
      })}
    </ol>
  );
}
