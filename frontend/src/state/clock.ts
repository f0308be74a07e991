// The steps of a run as curves, and the recordings that its step clocks made.

import { colored } from "../base/terms";
import { CLOCK_PHASES } from "../base/vocabulary";
import type { ClockRecording, ClockSlice, TraceEntry } from "../wire/report";
import { accent, known, stackedLines, type Curves } from "./history";

/** A range of steps, without the end. */
export interface StepSpan {
  readonly start: number;
  readonly end: number;
}

/** A zoom shows this part of what was shown. */
const ZOOM = 8;

/** The axis of step times ends at so many times the longest median: single steps may take a hundred times as long. */
const HEADROOM = 3;

/** Fewer steps are not worth a zoom. */
const FEWEST_STEPS = 16;

/** The curves of a slice. */
export function clockCurves(slice: ClockSlice): readonly Curves[] {
  const { low_us, median_us, high_us, phases } = slice;
  const joined = true;
  const highest = HEADROOM * Math.max(...median_us);
  const step: Curves = {
    ...{ title: "Step time", about: "median, and shortest to longest as a band", unit: "time", joined },
    highest,
    band: [1, 2],
    lines: [
      { name: "median", values: known(median_us), color: accent },
      { name: "longest", values: known(high_us), color: accent, edge: true },
      { name: "shortest", values: known(low_us), color: accent, edge: true },
    ],
  };
  const parts = phases.flatMap(({ name, us }) => {
    if (!Object.hasOwn(CLOCK_PHASES, name) || !us.some((value) => value > 0)) return [];
    const { word, color } = colored(CLOCK_PHASES, name);
    return [{ name: word, us, color: (scheme: "light" | "dark") => color[scheme] }];
  });
  const byPhase: Curves = {
    ...{ title: "Step by phase", about: "means, stacked", unit: "time", joined },
    highest,
    lines: stackedLines(parts),
  };
  return parts.length > 0 ? [step, byPhase] : [step];
}

/** The bin that a step is in; NaN if it is not shown. */
export function binOf({ step, end_step }: ClockSlice, wanted: number): number {
  if (wanted < (step[0] ?? 0) || wanted >= end_step) return NaN;
  return step.findLastIndex((first) => first <= wanted);
}

/** The steps of a bin. */
export function stepsOf({ step, end_step }: ClockSlice, bin: number): StepSpan {
  return { start: step[bin] ?? 0, end: step[bin + 1] ?? end_step };
}

/** Zoom in on a step of what is shown; null if that is as near as it gets. */
export function zoomed({ step, end_step, first_step, last_step }: ClockSlice, at: number): StepSpan | null {
  const shown = end_step - (step[0] ?? 0);
  const length = Math.max(Math.ceil(shown / ZOOM), FEWEST_STEPS);
  if (length >= shown) return null;
  const start = Math.min(Math.max(at - Math.floor(length / 2), first_step), last_step + 1 - length);
  return { start, end: start + length };
}

/** Recordings of several ranks that were made for one reason. */
export interface Recorded {
  readonly step: number;
  readonly why: string;
  readonly of: readonly ClockRecording[];
}

export function recordedTogether(recordings: readonly ClockRecording[]): readonly Recorded[] {
  const found = new Map<string, { step: number; why: string; of: ClockRecording[] }>();
  for (const one of recordings) {
    const key = `${one.step} ${one.why}`;
    const known = found.get(key);
    if (known) known.of.push(one);
    else found.set(key, { step: one.step, why: one.why, of: [one] });
  }
  return [...found.values()];
}

/** Where clocks are, below the run that they belong to. */
const BELOW = /(^|\/)gpudiag\/clock$/u;

/** The listed file of a recording of these clocks; undefined if it is not there any more. */
export function fileOf(
  traces: readonly TraceEntry[],
  clock: TraceEntry,
  { worker, span }: ClockRecording,
): TraceEntry | undefined {
  const of = clock.run.replace(BELOW, "") || ".";
  return traces.find((entry) => entry.run === of && entry.worker === worker && entry.span === span);
}
