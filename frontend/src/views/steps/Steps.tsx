import { percent, plural, time } from "../../base/format";
import { GLOSSARY } from "../../base/vocabulary";
import { inferredReason, accountParts, stepsOf } from "../../state/account";
import type { Device, InferredSteps, Report, StepAccount } from "../../wire/report";
import { Bar } from "../parts/Bar";
import { Section } from "../parts/Section";
import { ShowOnTimeline } from "../parts/ShowOnTimeline";

/** Time by cause of each step. A single step is the step window, which the account shows. */
export function Steps({ report, device }: { report: Report; device: Device }) {
  const { accounts, inferred } = stepsOf(report, device);
  if (accounts.length < 2) return null;
  return (
    <Section title={`Time per ${report.serving ? "engine step" : "step"} by cause`} about="account">
      <StepBars accounts={accounts} inferred={inferred} mfu={mfuOf(report, device, accounts.length)} />
    </Section>
  );
}

/** The MFU of each step: of the busiest device, and not of repetitions that may be no steps. */
function mfuOf({ devices, mfu }: Report, device: Device, steps: number): readonly number[] {
  return mfu && device === devices[0] && mfu.steps.length === steps ? mfu.steps : [];
}

interface BarsProps {
  readonly mfu: readonly number[];
  readonly accounts: readonly StepAccount[];
  readonly inferred: InferredSteps | null;
}

function StepBars({ accounts, inferred, mfu }: BarsProps) {
  const longest = Math.max(...accounts.map((step) => step.duration_us));
  return (
    <div className="gd-steps-body">
      {inferred && <Inferred inferred={inferred} />}
      <div className="gd-stepbars">
        {accounts.map((step, at) => (
          <div className="gd-stepbar" key={at} data-mfu={mfu[at] !== undefined || undefined}>
            <span title={step.name}>{step.name.replace(/^ProfilerStep#/, "Step ")}</span>
            <Bar
              parts={accountParts(step)}
              whole_us={step.duration_us}
              scale_us={longest}
              label={step.name}
            />
            <span>{time(step.duration_us)}</span>
            {mfu[at] !== undefined && (
              <span className="gd-muted" title={GLOSSARY.mfu}>
                MFU {percent(mfu[at])}
              </span>
            )}
            <ShowOnTimeline of={step} />
          </div>
        ))}
      </div>
    </div>
  );
}

/** Explains what the bars show if no steps were recorded. */
function Inferred({ inferred }: { inferred: InferredSteps }) {
  return (
    <p className="gd-inferred">
      <b>{inferred.are_steps ? "Inferred steps." : "Repeating launches, possibly not steps."}</b>{" "}
      {inferredReason(inferred)} There are {plural(inferred.repetitions, "repetition")} of{" "}
      {plural(inferred.period_launches, "launch", "launches")} each.
      {!inferred.are_steps && ` The median takes ${time(inferred.median_us)}.`}
    </p>
  );
}
