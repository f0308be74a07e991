// What limits a job, in words.

import type { Verdict_Limiter } from "../wire/report";
import { LIMITERS } from "./vocabulary";

/** The word for a limiter. Without a GPU, computing is the CPU's. */
export function limiterWord(limiter: Verdict_Limiter, onGpu: boolean): string {
  if (limiter === "compute" && !onGpu) return "CPU computing";
  return LIMITERS[limiter].word;
}
