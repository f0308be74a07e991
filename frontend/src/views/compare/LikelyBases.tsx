import { Button } from "@mantine/core";
import { likelyBases } from "../../state/choose";
import { traceLabel } from "../../state/comparison";
import { hasEvents } from "../../state/kinds";
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
  const likely = likelyBases(
    traces.filter(({ kind }) => hasEvents(kind)),
    entry,
    MOST,
  );
  if (likely.length === 0) return null;
  return (
    <Section title="Compare with">
      <div className="gd-suggested">
        {likely.map((base) => (
          <Button
            key={base.id}
            size="compact-sm"
            variant="default"
            onClick={() => {
              pinBase(base.id);
            }}
          >
            {traceLabel(base)}
          </Button>
        ))}
      </div>
    </Section>
  );
}
