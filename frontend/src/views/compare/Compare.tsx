import { contentsOf } from "../../state/views";
import { useComparison } from "../../state/queries";
import { usePage } from "../../state/store";
import type { Comparison, TraceEntry } from "../../wire/report";
import { Notice } from "../parts/Notice";
import { Answer } from "../status/Answer";
import { BaseChoice } from "./BaseChoice";
import { Causes } from "./Causes";
import { Differences } from "./Differences";
import { LikelyBases } from "./LikelyBases";
import { FindingChanges } from "./FindingChanges";
import { MemoryDifferences } from "./MemoryDifferences";
import { Promises } from "./Promises";
import { ComparisonVerdict } from "./ComparisonVerdict";

interface Props {
  readonly traces: readonly TraceEntry[];
  readonly entry: TraceEntry;
}

/** The recording on the page against a base: is it faster, and where the difference is. */
export default function Compare({ traces, entry }: Props) {
  const base = usePage((page) => page.base);
  const known = traces.find(({ id }) => id === base);
  const contents = contentsOf([entry, ...(known ? [known] : [])]);
  const { data, error } = useComparison(known ? base : null, entry.id, contents);
  return (
    <>
      <BaseChoice traces={traces} entry={entry} base={known} />
      {base !== null && !known && (
        <Notice tone="warning">The linked base is no longer in the log directory. Choose another.</Notice>
      )}
      {!known && <LikelyBases traces={traces} entry={entry} />}
      {known && (
        <Answer
          doing="Comparing the recordings"
          failed="The recordings cannot be compared"
          state={data}
          error={error}
          answer={data?.comparison}
        >
          {(comparison) => <Shown comparison={comparison} />}
        </Answer>
      )}
    </>
  );
}

function Shown({ comparison }: { comparison: Comparison }) {
  return (
    <>
      <ComparisonVerdict comparison={comparison} />
      <Causes comparison={comparison} />
      <FindingChanges comparison={comparison} />
      <Promises verified={comparison.verified} />
      <Differences title="Modules" items={comparison.modules} />
      <Differences title="Kernels" items={comparison.kernels} />
      <Differences title="Operators" items={comparison.operators} />
      <MemoryDifferences figures={comparison.memory} held={comparison.held} />
    </>
  );
}
