// What limits a job, in words.

import { word } from "./terms";
import { LIMITERS } from "./vocabulary";

/** The word for a limiter. Without a GPU, computing is the CPU's. */
export function limiterWord(limiter: string, onGpu: boolean): string {
  if (limiter === "compute" && !onGpu) return "CPU computing";
  return word(LIMITERS, limiter);
}
