// A device's step window and its steps as parts to show. Every figure is the report's: nothing is computed again.

import { rank } from "../base/causes";
import type { CauseTime, Device, InferredSteps, Report, StepAccount } from "../wire/report";

export interface Part {
  /** computing, copying, communicating, or an idle cause. */
  readonly name: string;
  readonly us: number;
}

function parts(
  computing: number,
  copying: number,
  communicating: number,
  idle: readonly CauseTime[],
): Part[] {
  return [
    { name: "computing", us: computing },
    { name: "copying", us: copying },
    { name: "communicating", us: communicating },
    ...idle.map(({ cause, us }) => ({ name: cause, us })),
  ]
    .filter(({ us }) => us > 0)
    .sort((a, b) => rank(a.name) - rank(b.name));
}

export function windowParts(device: Device): Part[] {
  return parts(
    device.window_computing_us,
    device.window_copying_us,
    device.window_communicating_us,
    device.window_idle_by_cause,
  );
}

export function stepParts(step: StepAccount): Part[] {
  return parts(step.computing_us, step.copying_us, step.communicating_us, step.idle_by_cause);
}

interface Steps {
  readonly accounts: readonly StepAccount[];
  /** Set where nobody marked the steps, and what is shown is what repeats. */
  readonly inferred: InferredSteps | null;
}

/** The steps of a device as recorded, or else as inferred. */
export function stepsOf({ steps, inferred_steps: inferred }: Report, device: Device): Steps {
  if (steps.length > 0 || inferred?.device !== device.id)
    return { accounts: device.step_accounts, inferred: null };
  return { accounts: inferred.accounts, inferred };
}

const SIGNS: Readonly<Record<string, (inside: string) => string>> = {
  module: () => "Each runs a call of its own of an outermost module.",
  input: () => "Each takes data from the host.",
  threads: () => "Each is launched by several host threads, as forward and backward are.",
  one_call: (inside) => `All lie inside one call of ${inside}: parts of a step, such as layers.`,
  none: () => "Nothing in the trace tells whether one is a step or a part of one, such as a layer.",
};

/** Why what repeats is taken for steps, or is not. */
export function inferredReason({ sign, inside }: InferredSteps): string {
  return SIGNS[sign]?.(inside) ?? "";
}

/** What costs and savings are shares of: the step window, the same for all devices. */
export function window_us(report: Report): number {
  const device = report.devices[0];
  if (device) return device.window_us;
  const first = report.steps[0];
  const last = report.steps.at(-1);
  if (first && last) return last.start_us + last.duration_us - first.start_us;
  return report.trace?.duration_us ?? 0;
}

/** The mean of the slices that the bars show; without a GPU, of the steps themselves. */
export function meanStep_us(report: Report): number {
  const accounts = report.devices[0]?.step_accounts ?? [];
  const slices = accounts.length > 0 ? accounts : report.steps;
  return slices.reduce((sum, { duration_us }) => sum + duration_us, 0) / slices.length;
}

export function deviceLabel(device: Device): string {
  return device.name ? `GPU ${device.id} · ${device.name}` : `GPU ${device.id}`;
}
