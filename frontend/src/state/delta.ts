// A figure against the same figure of the pinned base: with its sign, in words, and whether that is better.

import { figures, percent } from "../base/format";
import { signed } from "./comparison";

export interface Delta {
  /** "+1.2 ms", "-3.4%". */
  readonly text: string;
  /** "12.0% more", "same", "new", "gone". */
  readonly words: string;
  /** "same": it is no larger than what changes from run to run. */
  readonly tone: "better" | "worse" | "same";
}

/** A smaller share of the base reads as no change. */
const LEAST_SHARE = 0.0005;

/** Clocks and temperature move a GPU by 1% to 2% from run to run, so smaller differences have no color. */
const NOISE_SHARE = 0.02;

/** Return the difference; null if one of the figures is not known. `format` writes a figure of this kind. */
export function deltaOf(
  now: number,
  base: number,
  format: (value: number) => string,
  moreIsBetter = false,
): Delta | null {
  if (!Number.isFinite(now) || !Number.isFinite(base)) return null;
  const difference = now - base;
  if (Math.abs(difference) <= LEAST_SHARE * Math.abs(base))
    return { text: format(0), words: "same", tone: "same" };
  return {
    text: signed(difference, format(difference)),
    words: base === 0 ? "new" : now === 0 ? "gone" : shareOf(difference, base),
    tone:
      Math.abs(difference) <= NOISE_SHARE * Math.abs(base)
        ? "same"
        : difference > 0 === moreIsBetter
          ? "better"
          : "worse",
  };
}

/** The difference of two shares, in percentage points. More is better. */
export function shareDelta(now: number, base: number): Delta {
  const difference = now - base;
  if (Math.abs(difference) <= LEAST_SHARE) return { text: "0 points", words: "same", tone: "same" };
  return {
    text: `${signed(difference, figures(100 * difference))} points`,
    words: difference > 0 ? "more" : "less",
    tone: Math.abs(difference) <= NOISE_SHARE ? "same" : difference > 0 ? "better" : "worse",
  };
}

function shareOf(difference: number, base: number): string {
  const ratio = Math.abs(difference / base);
  const amount = ratio >= MANY ? `${(ratio + 1).toFixed(0)} times as much` : `${percent(ratio)} more`;
  return difference > 0 ? amount : `${percent(ratio)} less`;
}

/** From here on a factor reads better than a percentage. */
const MANY = 9;
