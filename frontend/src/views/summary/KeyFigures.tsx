import { count, percent, plural, time } from "../../base/format";
import { GLOSSARY } from "../../base/vocabulary";
import { meanStep_us } from "../../state/account";
import type { Recorded, Report } from "../../wire/report";

/** Figures about the recording: how busy the GPU was, how many steps, on which GPU, and what was recorded. */
export function KeyFigures({ report }: { report: Report }) {
  const { trace, verdict, steps, devices } = report;
  return (
    <div className="gd-figures">
      <dl className="gd-facts">
        {devices.length > 0 && (
          <Fact name="GPU busy" about="gpu busy" value={percent(verdict?.busy_share ?? 0)} />
        )}
        <Fact name="Steps" value={stepCount(report)} />
        {steps.length > 0 && <Fact name="Mean step" value={time(meanStep_us(report))} />}
        <Fact name="Recording" value={time(trace?.duration_us ?? 0)} />
      </dl>
      <p className="gd-muted">{gpus(report)}</p>
      {trace?.recorded && <RecordedLine recorded={trace.recorded} />}
    </div>
  );
}

function stepCount({ steps, inferred_steps: inferred }: Report): string {
  if (steps.length > 0) return count(steps.length);
  return inferred?.are_steps ? `${count(inferred.repetitions)} inferred` : "none marked";
}

function Fact({ name, value, about }: { name: string; value: string; about?: string }) {
  return (
    <div title={about && GLOSSARY[about]}>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

function gpus({ devices, trace }: Report): string {
  const names = [...new Set(devices.map((device) => device.name || "unnamed GPU"))].join(", ");
  const what =
    devices.length === 0
      ? "No GPU activity recorded"
      : devices.length === 1
        ? names
        : `${plural(devices.length, "GPU")}: ${names}`;
  const rank =
    trace && trace.rank >= 0
      ? ` · rank ${trace.rank}${trace.world_size > 0 ? ` of ${trace.world_size}` : ""}`
      : "";
  return what + rank;
}

const RECORDED: readonly (readonly [keyof Recorded, string, string])[] = [
  ["steps", "steps", "Call prof.step() after each step"],
  ["stacks", "stacks", "Record with with_stack=True"],
  ["shapes", "shapes", "Record with record_shapes=True"],
  ["memory", "memory", "Record with profile_memory=True"],
];

/** What was recorded and what was not, because that decides what the report can say. */
function RecordedLine({ recorded }: { recorded: Recorded }) {
  return (
    <ul className="gd-recorded" aria-label="Recorded">
      {RECORDED.map(([key, label, how]) => (
        <li key={key} title={recorded[key] ? "Recorded" : `Not recorded. ${how}`}>
          <span aria-hidden="true">{recorded[key] ? "✓" : "✗"}</span> {label}
          {!recorded[key] && <span className="gd-unseen"> not recorded</span>}
        </li>
      ))}
    </ul>
  );
}
