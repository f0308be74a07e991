// A comparison as the page shows it: differences with their signs, and the verdict in words.

import { bytes, count, figures, time } from "../base/format";
import type { CauseDifference, OperatorDifference, TraceEntry } from "../wire/report";
import { rank } from "../base/causes";
import { spanLabel } from "./choose";

/** The text of a figure, with a plus sign if it is positive. */
export function signed(value: number, text: string): string {
  return value > 0 ? `+${text}` : text;
}

export function signedTime(us: number): string {
  return signed(us, time(us));
}

export function signedBytes(size: number): string {
  return signed(size, bytes(size));
}

/** A mean of whole numbers: "12", or "0.25". */
export function countText(value: number): string {
  return Number.isInteger(value) || value >= 100 ? count(value) : figures(value);
}

export function difference({ base_us, candidate_us }: CauseDifference | OperatorDifference): number {
  return candidate_us - base_us;
}

/** Return the causes in the order of every legend, without those that neither side has. */
export function shownCauses(causes: readonly CauseDifference[]): CauseDifference[] {
  return causes
    .filter(({ base_us, candidate_us }) => base_us > 0 || candidate_us > 0)
    .sort((a, b) => rank(a.cause) - rank(b.cause));
}

/** "run · worker · 2026-03-01 14:05:09". */
export function traceLabel({ run, worker, span }: TraceEntry): string {
  return [run, worker, span && spanLabel(span)].filter(Boolean).join(" · ");
}
