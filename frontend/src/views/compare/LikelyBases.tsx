import { Button } from "@mantine/core";
import { likelyBases, sameWork } from "../../state/choose";
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

/** Recordings to compare with at one click. */
export function LikelyBases({ traces, entry }: Props) {
  const pinBase = usePage((page) => page.pinBase);
  const rows = useRuns().data?.rows;
  const likely = likelyBases(
    traces.filter(({ kind }) => comparable(kind, entry.kind)),
    entry,
    MOST,
    sameWork(rows ?? [], entry.run),
  );
  if (likely.length === 0) return null;
  return (
    <Section title="Compare with" aside={<span className="gd-muted">the likeliest first</span>}>
      <ul className="gd-suggested">
        {likely.map(({ base, why }, at) => (
          <li key={base.id}>
            <Button
              size="compact-sm"
              variant={at === 0 ? "light" : "default"}
              onClick={() => pinBase(base.id)}
            >
              {traceLabel(base)}
            </Button>
            <span className="gd-muted">{why}</span>
          </li>
        ))}
      </ul>
    </Section>
  );
}
