// What a fix saves, in words. Every figure comes from the report.

import { bytes, percent, plural, time, timeBeside } from "../base/format";
import { term } from "../base/terms";
import { SAVING_BASES } from "../base/vocabulary";
import {
  Finding_Severity,
  type DeviceMemory,
  type Finding,
  type Place,
  type Plan,
  type PlannedFix,
  type Report,
  type Saving,
} from "../wire/report";
import { costsMemory, isHint } from "./findings";

/** "1 ms", "1 to 2 ms", "1 µs to 2 ms": two figures, or one if they read the same. */
export function between(low: string, high: string): string {
  if (low === high) return high;
  const [figure, unit] = low.split("\u00a0");
  const same = unit !== undefined && unit === high.split("\u00a0")[1] && !high.includes(" min");
  const shared = same || figure === "0";
  return `${shared ? figure : low} to ${high}`;
}

export interface Gain {
  /** The step without the profiler. */
  readonly before: string;
  /** "6 ms (80% range 5 to 8 ms)", "178 ms at best". */
  readonly after: string;
  /** "per step", "over the step window". */
  readonly of: string;
  /** "saves 40.0% (20.0% to 50.0%)", "saves at most 33.4%". */
  readonly share: string;
}

/** Eight in ten of the fixes of a kind end inside. */
const RANGE = "80% range ";

/** The step time before and after a fix, or the step window if no steps are known. Null if the fix saves no time. */
export function gainOf(saving: Saving | undefined): Gain | null {
  if (!saving || saving.high_us <= 0 || saving.high_share <= 0) return null;
  const perStep = saving.high_per_step_us > 0;
  const whole_us = (perStep ? saving.high_per_step_us : saving.high_us) / saving.high_share;
  const after = (share: number) => timeBeside(Math.max(0, whole_us * (1 - share)), whole_us);
  return {
    before: time(whole_us),
    ...savedOf(saving.low_share, saving.likely_share, saving.high_share, after),
    of: perStep ? "per step" : "over the step window",
  };
}

/** What is left after a saving of these shares, and the saving, in words. likely: 0 if only a bound is known. */
export function savedOf(
  low: number,
  likely: number,
  high: number,
  after: (share: number) => string,
): Pick<Gain, "after" | "share"> {
  if (likely <= 0) return { after: `${after(high)} at best`, share: `saves at most ${percent(high)}` };
  if (low <= 0)
    return {
      after: `${after(likely)}, ${after(high)} at best`,
      share: `saves ${percent(likely)}, at most ${percent(high)}`,
    };
  return {
    after: `${after(likely)} (${RANGE}${between(after(high), after(low))})`,
    share: `saves ${percent(likely)} (${between(percent(low), percent(high))})`,
  };
}

/** What a fix saves, short: "saves 89.6 ms to 189 ms per step", "frees 2 GiB". Empty if nothing is known. */
export function savedShort(finding: Finding): string {
  const { saving, cost_bytes, cost_bytes_per_step: growth } = finding;
  if (growth > 0) return `saves ${bytes(growth)} per step`;
  if (costsMemory(finding)) return `frees ${bytes(cost_bytes)}`;
  if (saving?.basis === "replayed" && saving.high_us <= 0) return "saves nothing by itself";
  if (!saving || saving.high_us <= 0) return "";
  const perStep = saving.high_per_step_us > 0;
  const low_us = perStep ? saving.low_per_step_us : saving.low_us;
  const high_us = perStep ? saving.high_per_step_us : saving.high_us;
  const likely_us = perStep ? saving.likely_per_step_us : saving.likely_us;
  // In the unit of the step that it is a share of.
  const step_us = saving.high_share > 0 ? high_us / saving.high_share : high_us;
  const high = timeBeside(high_us, step_us);
  const range = saving.low_us <= 0 ? `at most ${high}` : between(timeBeside(low_us, step_us), high);
  const likely = likely_us > 0 ? `${timeBeside(likely_us, step_us)} (${range})` : range;
  return `saves ${likely}${perStep ? " per step" : ""}`;
}

/** How far the gain can be trusted, and why. memory: the device's, if the finding is about memory. */
export function confidenceOf(
  { saving, cost_bytes_per_step: growth }: Finding,
  plan: Plan | undefined,
  memory?: DeviceMemory,
): string {
  if (memory && growth > 0) return growthOf(memory);
  if (!saving || saving.high_us <= 0) return "";
  const bound = saving.basis.startsWith("at most");
  const basis = bound ? "" : (term(SAVING_BASES, saving.basis)?.explanation ?? saving.basis);
  const also = bound && saving.basis.includes(";") ? "Other findings include the same time." : "";
  const unsure = bound || saving.low_us <= 0 ? "Low: upper bound only." : "";
  const error =
    saving.basis === "replayed" && plan
      ? `The replay reproduces the recorded steps with ${percent(plan.error_share)} error.`
      : "";
  const beyond = saving.beyond && `A fix can save more than the cost, because ${saving.beyond}.`;
  const rests = saving.likely_us > 0 ? restsOn(saving.pairs) : "";
  return [unsure, basis, also, error, rests, beyond].filter(Boolean).join(" ");
}

/** How many measured fixes the range rests on. */
function restsOn(pairs: number): string {
  return pairs > 0
    ? `The range rests on ${plural(pairs, "fix", "fixes")} of this kind that ${pairs === 1 ? "was" : "were"} timed before and after.`
    : "No fix of this kind was timed before and after: the range rests on others, and is wide.";
}

/** The growth of a device's memory as measured, with its confidence interval. Empty if nothing was fitted. */
function growthOf({ trend }: DeviceMemory): string {
  if (!trend) return "";
  const [low, high] = [bytes(Math.max(0, trend.low_bytes_per_step)), bytes(trend.high_bytes_per_step)];
  const over = plural(trend.steps, trend.unit === "step" ? trend.word || "step" : "time window");
  if (low === high) return `The floor of allocated memory rises evenly over ${over}.`;
  return `The floor of allocated memory rises by ${between(low, high)} per ${trend.unit === "step" ? trend.word || "step" : "second"} (95% confidence, over ${over}).`;
}

/** The place to change: the user's own function if an installed package called on its behalf, then where the time goes. Places
 * without a name or a file only say when. */
export function ownPlace(
  places: readonly Place[],
): { readonly own: Place; readonly inside: Place | null } | null {
  const place =
    places.find(({ caller, file, function: name }) => caller ?? (file || name)) ??
    places.find(({ operator }) => operator);
  if (!place) return null;
  return place.caller ? { own: place.caller, inside: place } : { own: place, inside: null };
}

/** The code up to its first empty line, but more than imports: the first way to fix it. */
export function firstBlock(code: string): string {
  const blocks = code.trim().split(/\n\s*\n/);
  const does = (block: string) => block.split("\n").some((line) => !/^\s*(#|import |from |$)/.test(line));
  return blocks.slice(0, blocks.findIndex(does) + 1 || 1).join("\n\n");
}

/** For each finding, the step (or step window) once it and the fixes before it are made. */
export function stepAfter({ plan, step_time }: Report): ReadonlyMap<number, string> {
  const { fixes, whole_us: window_us } = plan ?? { fixes: [], whole_us: 0 };
  const whole_us = window_us || (step_time?.unprofiled_us ?? 0);
  return new Map(fixes.map((fix) => [fix.finding, stepOf(fix, whole_us)]));
}

/** "2.5 ms (2.2 to 3.6 ms)": a column of ranges says once how sure they are. */
export function inColumn(after: string): string {
  return after.replace(RANGE, "");
}

/** "2.5 ms (80% range 2.2 to 3.6 ms)". */
function stepOf({ least_us, likely_us, most_us }: PlannedFix, whole_us: number): string {
  return savedOf(1 - most_us / whole_us, 1 - likely_us / whole_us, 1 - least_us / whole_us, (share) =>
    timeBeside(whole_us * (1 - share), whole_us),
  ).after;
}

/** Return true for a finding about the recording itself: to fix it is to record again, which makes nothing faster. */
export function isAboutRecording({ rule }: Finding): boolean {
  return rule.startsWith("GD9");
}

/** What the recording itself adds to the finding's time, at least and at most; empty if little. */
export function overheadOf({ evidence }: Finding): string {
  return evidence.find(({ label }) => label === "Recording overhead, estimated")?.value ?? "";
}

/** The finding to fix first; null if none costs time or memory. What only says that the CPU computes comes before a leak,
 * and does not hide it. */
export function toFix({ findings }: Report): Finding | null {
  const shown = findings.filter((finding) => !isHint(finding));
  const [first] = shown;
  if (first && (first.cost_us > 0 || costsMemory(first))) return first;
  return shown.find(({ severity }) => severity !== Finding_Severity.INFO) ?? null;
}

/** What a fix most likely saves once those before it in the plan are made; empty if that is what it saves alone. */
export function savedLater({ plan, findings }: Report, finding: Finding): string {
  const fix = plan?.fixes.slice(1).find((later) => findings[later.finding] === finding);
  const later = fix ? time(fix.saving_us) : "";
  const alone_us = plan?.per_step ? finding.saving?.likely_per_step_us : finding.saving?.likely_us;
  return later && later !== time(alone_us ?? 0) ? `saves ${later}` : "";
}
