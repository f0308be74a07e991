import { count, percent, plural, time } from "../../base/format";
import { GLOSSARY } from "../../base/vocabulary";
import type { Against } from "../../state/base";
import { deltaOf, shareDelta, type Delta } from "../../state/delta";
import type { Mfu, Recorded, Report } from "../../wire/report";
import { DeltaText } from "../base/DeltaText";
import { stepText } from "../parts/stepText";
import { optionsOf } from "../recording/parts";

interface Props {
  readonly report: Report;
  readonly against: Against | null;
}

/**
 * Figures about the recording: how many steps, on which GPU, and what was recorded. How busy the GPU was, and its MFU, are
 * in the verdict: here they are compared with the base.
 */
export function KeyFigures({ report, against }: Props) {
  const { trace, verdict, step_time: step, devices, mfu } = report;
  const base = against?.report;
  const compared = against?.comparison?.step_us;
  const differs = compared && compared.base_steps > 0 && compared.candidate_steps > 0;
  return (
    <div className="gd-figures">
      <dl className="gd-facts">
        {devices.length > 0 && base && base.devices.length > 0 && (
          <Fact
            name="GPU busy"
            about="gpu busy"
            value={percent(verdict?.busy_share ?? 0)}
            delta={shareDelta(verdict?.busy_share ?? 0, base.verdict?.busy_share ?? 0)}
          />
        )}
        {hasMfu(mfu) && hasMfu(base?.mfu) && (
          <Fact
            name="MFU"
            about="mfu"
            value={(mfu.at_least ? "≥ " : "") + percent(mfu.mfu)}
            delta={shareDelta(mfu.mfu, base.mfu.mfu)}
          />
        )}
        <Fact name={report.serving ? "Engine steps" : "Steps"} value={stepCount(report)} />
        {step && (
          <Fact
            name="Step"
            about="step time"
            value={stepText(step)}
            delta={differs ? deltaOf(compared.candidate, compared.base, time) : null}
          />
        )}
      </dl>
      <p className="gd-muted">{gpus(report)}</p>
      {trace?.recorded && <RecordedLine recorded={trace.recorded} how={optionsOf(report)} />}
    </div>
  );
}

function hasMfu(mfu: Mfu | undefined): mfu is Mfu {
  return mfu !== undefined && mfu.parts.length > 0;
}

/** The steps in the step window, of all that are marked or inferred. */
function stepCount({ steps, step_time: step, inferred_steps: inferred, serving }: Report): string {
  if (!step && serving) return count(serving.steps);
  if (!step) return steps.length > 0 ? count(steps.length) : "none marked";
  const known = step.inferred ? (inferred?.repetitions ?? 0) : steps.length;
  const all = step.steps < known ? `${count(step.steps)} of ${count(known)}` : count(step.steps);
  return step.inferred ? `${all} inferred` : all;
}

interface FactProps {
  readonly name: string;
  readonly value: string;
  readonly about?: string;
  readonly delta?: Delta | null;
}

function Fact({ name, value, about, delta = null }: FactProps) {
  return (
    <div title={about && GLOSSARY[about]}>
      <dt>{name}</dt>
      <dd>
        {value} <DeltaText delta={delta} />
      </dd>
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

const RECORDED = ["steps", "stacks", "shapes", "memory"] as const;

/** What was recorded and what was not, because that decides what the report can say. */
function RecordedLine({ recorded, how }: { recorded: Recorded; how: ReturnType<typeof optionsOf> }) {
  return (
    <ul className="gd-recorded" aria-label="Recorded">
      {RECORDED.map((key) => (
        <li key={key} title={recorded[key] ? "Recorded" : `Not recorded. Record with ${how[key]}`}>
          <span aria-hidden="true">{recorded[key] ? "✓" : "✗"}</span> {key}
          {!recorded[key] && <span className="gd-unseen"> not recorded</span>}
        </li>
      ))}
    </ul>
  );
}
