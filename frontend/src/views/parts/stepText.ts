import { time } from "../../base/format";
import type { StepTime } from "../../wire/report";

/** A smaller part of the recorded step than this is not worth a word: steps differ by as much. */
const SLOWED = 0.95;

/** "21.5 ms (mean 24.1 ms), about 7.2 ms (4.1 ms to 12.3 ms) without the profiler" where these make a difference. */
export function stepText(step: StepTime): string {
  const { median_us, mean_us, unprofiled_us } = step;
  const recorded = time(median_us) + (median_us < SLOWED * mean_us ? ` (mean ${time(mean_us)})` : "");
  const slowed = unprofiled_us > 0 && unprofiled_us < SLOWED * mean_us;
  const low = time(step.unprofiled_least_us);
  const high = time(step.unprofiled_most_us);
  const span = low === high ? "" : ` (${low} to ${high})`;
  return slowed ? `${recorded}, about ${time(unprofiled_us)}${span} without the profiler` : recorded;
}
