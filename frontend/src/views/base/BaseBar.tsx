import { Button } from "@mantine/core";
import { stepCounts, useAgainst, usePinned } from "../../state/base";
import { traceLabel } from "../../state/comparison";
import { usePage } from "../../state/store";
import type { TraceEntry } from "../../wire/report";
import { Notice } from "../parts/Notice";

/** The base that the page compares with, and the verdict. `entry`: null in the Runs view. */
export function BaseBar({ entry }: { entry: TraceEntry | null }) {
  const pinned = usePinned();
  if (!pinned || pinned.entry?.id === entry?.id) return null;
  if (!pinned.entry) {
    return (
      <Notice tone="warning" action={<Unpin />}>
        The pinned base is no longer in the log directory, so there is nothing to compare with.
      </Notice>
    );
  }
  return (
    <section className="gd-card gd-basebar" aria-label="Base">
      <p>
        <span className="gd-muted">Base</span> <b>{traceLabel(pinned.entry)}</b>{" "}
        {entry ? (
          <Judgment entry={entry} />
        ) : (
          <span>Step times in the table show their difference from the base.</span>
        )}
      </p>
      <span className="gd-buttons">
        {entry && <CompareButton />}
        <Unpin />
      </span>
    </section>
  );
}

function Judgment({ entry }: { entry: TraceEntry }) {
  const against = useAgainst(entry);
  const comparison = against?.comparison;
  if (against?.problem) return <span role="status">{against.problem}</span>;
  if (!comparison) return <span role="status">Comparing…</span>;
  return (
    <span role="status">
      {comparison.sentence}
      {!stepCounts(comparison) && " Per-step figures are not compared."}
    </span>
  );
}

function CompareButton() {
  const openTab = usePage((page) => page.openTab);
  return (
    <Button size="compact-xs" variant="light" onClick={() => openTab("compare")}>
      Compare
    </Button>
  );
}

function Unpin() {
  const pinBase = usePage((page) => page.pinBase);
  return (
    <Button size="compact-xs" variant="default" aria-label="Unpin the base" onClick={() => pinBase(null)}>
      Unpin
    </Button>
  );
}
