// Breakdowns of a device's step window and of its steps. Every figure comes from the report; none is recomputed.

import { rank } from "../base/causes";
import { STEP_SIGNS } from "../base/vocabulary";
import type { CauseTime_Cause, Device, InferredSteps, Report, StepAccount } from "../wire/report";

export interface Part {
  /** "computing", "copying", "communicating", or an idle cause. */
  readonly name: CauseTime_Cause;
  readonly us: number;
}

/** The parts of a time of one device or rank: work, and idle time by cause. */
type Accounted = Pick<StepAccount, "computing_us" | "copying_us" | "communicating_us" | "idle_by_cause">;

/** The parts of a step, or of a rank's step window. */
export function accountParts(of: Accounted): Part[] {
  const all: Part[] = [
    { name: "computing", us: of.computing_us },
    { name: "copying", us: of.copying_us },
    { name: "communicating", us: of.communicating_us },
    ...of.idle_by_cause.map(({ cause, us }) => ({ name: cause, us })),
  ];
  return all.filter(({ us }) => us > 0).sort((a, b) => rank(a.name) - rank(b.name));
}

export function windowParts(device: Device): Part[] {
  return accountParts({
    computing_us: device.window_computing_us,
    copying_us: device.window_copying_us,
    communicating_us: device.window_communicating_us,
    idle_by_cause: device.window_idle_by_cause,
  });
}

interface Steps {
  readonly accounts: readonly StepAccount[];
  /** Set if the job marked no steps, so that a repetition of launches is shown instead. */
  readonly inferred: InferredSteps | null;
}

/** The steps of a device in the step window, or else the repetitions that may be parts of one. */
export function stepsOf({ inferred_steps: inferred }: Report, device: Device): Steps {
  if (inferred && (inferred.are_steps || inferred.device === device.id))
    return { accounts: inferred.are_steps ? device.step_accounts : inferred.accounts, inferred };
  return { accounts: device.step_accounts, inferred: null };
}

/** Why the repetition is, or is not, taken for steps. */
export function inferredReason({ sign, inside }: InferredSteps): string {
  return STEP_SIGNS[sign].explanation.replace("{inside}", inside);
}

/** Length of the step window, the whole for all shares of time. It is the same for all devices. */
export function window_us(report: Report): number {
  const device = report.devices[0];
  if (device) return device.window_us;
  const first = report.steps[0];
  const last = report.steps.at(-1);
  if (first && last) return last.start_us + last.duration_us - first.start_us;
  return report.trace?.duration_us ?? 0;
}

export function deviceLabel(device: Device): string {
  return device.name ? `GPU ${device.id} · ${device.name}` : `GPU ${device.id}`;
}
