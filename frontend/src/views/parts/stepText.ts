import { time } from "../../base/format";
import type { StepTime } from "../../wire/report";

/** A smaller part of the recorded step than this is not worth a word: steps differ by as much. */
const SLOWED = 0.95;

/** "21.5 ms, about 7.2 ms without the profiler" where that makes a difference. */
export function stepText({ median_us, unprofiled_us }: StepTime): string {
  const slowed = unprofiled_us > 0 && unprofiled_us < SLOWED * median_us;
  return slowed ? `${time(median_us)}, about ${time(unprofiled_us)} without the profiler` : time(median_us);
}
