import { cause, WORK } from "../../base/causes";
import { time } from "../../base/format";
import { useAgainst } from "../../state/base";
import { difference, shownCauses } from "../../state/comparison";
import { deltaOf } from "../../state/delta";
import type { TraceEntry } from "../../wire/report";
import { DeltaText } from "../base/DeltaText";
import { CauseSwatch } from "../parts/CauseSwatch";

/** Causes with a difference that the line has room for. */
const MOST = 5;

/** Idle time per step by cause against the pinned base, the largest differences first. */
export function IdleAgainstBase({ entry }: { entry: TraceEntry }) {
  const comparison = useAgainst(entry)?.comparison;
  if (!comparison) return null;
  const idle = shownCauses(comparison.causes)
    .filter((item) => !WORK.includes(item.cause) && item.cause !== "other")
    .sort((a, b) => Math.abs(difference(b)) - Math.abs(difference(a)))
    .slice(0, MOST);
  if (idle.length === 0) return null;
  return (
    <section className="gd-idle-base" aria-label="Idle time per step against the base">
      <span className="gd-muted">Idle per step</span>
      {idle.map(({ cause: name, base_us, candidate_us }) => (
        <span key={name}>
          <CauseSwatch name={name} />
          {cause(name).word} <b>{time(candidate_us)}</b>{" "}
          <DeltaText delta={deltaOf(candidate_us, base_us, time)} base={time(base_us)} />
        </span>
      ))}
    </section>
  );
}
