import { Button } from "@mantine/core";
import { likelyBases, sameWork, type LikelyBase } from "../../state/choose";
import { traceLabel } from "../../state/comparison";
import { comparable } from "../../state/kinds";
import { useRuns } from "../../state/queries";
import { usePage } from "../../state/store";
import type { TraceEntry } from "../../wire/report";
import { Section } from "../parts/Section";

/** More would take longer to read than to search. */
const MOST = 8;

interface Props {
  readonly traces: readonly TraceEntry[];
  readonly entry: TraceEntry;
}

/** Recordings to compare with at one click; those of other jobs, as it seems, at two. */
export function LikelyBases({ traces, entry }: Props) {
  const rows = useRuns().data?.rows;
  const likely = likelyBases(
    traces.filter(({ kind }) => comparable(kind, entry.kind)),
    entry,
    MOST,
    sameWork(rows ?? [], entry.run),
  );
  if (likely.length === 0) return null;
  const [related, others] = [likely.filter(({ why }) => why !== ""), likely.filter(({ why }) => why === "")];
  return (
    <Section title="Compare with" aside={<span className="gd-muted">the likeliest first</span>}>
      {related.length > 0 && <Offered bases={related} />}
      {others.length > 0 && (
        <details className="gd-others" open={related.length === 0}>
          <summary>Runs that look like other jobs</summary>
          <Offered bases={others} />
        </details>
      )}
    </Section>
  );
}

function Offered({ bases }: { bases: readonly LikelyBase[] }) {
  const pinBase = usePage((page) => page.pinBase);
  return (
    <ul className="gd-suggested">
      {bases.map(({ base, why }, at) => (
        <li key={base.id}>
          <Button
            size="compact-sm"
            variant={at === 0 && why !== "" ? "light" : "default"}
            onClick={() => pinBase(base.id)}
          >
            {traceLabel(base)}
          </Button>
          <span className="gd-muted">{why}</span>
        </li>
      ))}
    </ul>
  );
}
