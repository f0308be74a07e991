// One device's memory in the report, as sentences and parts to show. No figure is recomputed.

import { bytes, codePlace, count, moment, percent, plural, time } from "../base/format";
import { term } from "../base/terms";
import { PHASES, TREND_STATES } from "../base/vocabulary";
import type { DeviceMemory, FloorTrend, MemoryKind_Kind, MemoryOwner, Place } from "../wire/report";

export function memoryLabel({ device }: DeviceMemory): string {
  return device < 0 ? "CPU" : `GPU ${device}`;
}

/** Format a change of size: "+8 MiB", "−3 KiB". */
export function change(size: number): string {
  return `${size < 0 ? "−" : "+"}${bytes(Math.abs(size))}`;
}

/** One sentence about the peak, the reserved memory and the capacity. */
export function peakSentence(memory: DeviceMemory): string {
  const { peak_allocated_bytes: peak, reserved_at_peak_bytes: reserved, capacity_bytes: capacity } = memory;
  const held = reserved > 0 ? `, ${bytes(reserved)} reserved` : "";
  const most = reserved > 0 ? reserved : peak;
  const of = capacity > 0 ? ` (${percent(most, capacity)} of the device's ${bytes(capacity)})` : "";
  const phase = term(PHASES, memory.peak_phase);
  return `Memory peaks ${time(memory.peak_us)} after the start${phase ? `, in the ${phase.noun}` : ""}: ${bytes(peak)} allocated${held}${of}.`;
}

/** One or two sentences about the floor of the steps. */
export function floorSentence(memory: DeviceMemory): string {
  const { trend, steps_until_full: left, floor_slope_bytes_per_step: slope } = memory;
  if (!trend) return "Record at least three steps to see whether memory grows.";
  const full =
    trend.state === "rising" && left > 0 ? ` At this rate, memory is full after ${more(left, trend)}.` : "";
  return `The floor ${does(trend, slope || trend.bytes_per_step)}.${full}`;
}

function does(trend: FloorTrend, slope: number): string {
  const known = term(TREND_STATES, trend.state) ?? TREND_STATES.unclear;
  return known.noun.replace("{change}", perUnit(trend, slope, trend.state === "falling" ? -1 : 1));
}

function more(left: number, { unit, word }: FloorTrend): string {
  return unit === "second"
    ? time(left * 1e6)
    : plural(Math.max(1, Math.floor(left)), `more ${word || "step"}`);
}

/** A 95% confidence interval needs at least this many floors. */
const FEWEST_FOR_95 = 4;

/** "8 MiB per step (95% confidence: 7.9 MiB to 8.1 MiB)". */
function perUnit(trend: FloorTrend, slope: number, sign: 1 | -1): string {
  const { low_bytes_per_step, high_bytes_per_step, steps, unit, word, start_us, end_us } = trend;
  if (unit === "second") {
    const seen = end_us - start_us;
    return `${bytes((sign * slope * seen) / 1e6)} in ${time(seen)}`; // no rate beyond what was seen
  }
  const [low = 0, high = 0] = [sign * low_bytes_per_step, sign * high_bytes_per_step].sort((a, b) => a - b);
  const between =
    steps < FEWEST_FOR_95 || bytes(low) === bytes(high)
      ? ""
      : ` (95% confidence: ${bytes(low)} to ${bytes(high)})`;
  return `${bytes(sign * slope)} per ${word || "step"}${between}`;
}

/** What the curve leaves out, or "" if it is complete. */
export function caveat({ device, relative }: DeviceMemory): string {
  if (relative) {
    return "Old trace format: memory from before the recording is not counted.";
  }
  if (device < 0) return "CPU memory counts only what was allocated while the profiler ran.";
  return "";
}

/** "aten::mm in Linear": the operator and its module, as far as they are known. */
export function who({ operator, module }: { readonly operator: string; readonly module: string }): string {
  return operator && module ? `${operator} in ${module}` : operator || module;
}

/** The function with its file and line, as far as they are known. */
export function where(place: Place | undefined): string {
  return place ? codePlace(place) : "";
}

interface Origin {
  readonly operator: string;
  readonly place: Place | undefined;
}

/** Return true if two allocations are by the same operator at the same place. */
export function sameSite(one: Origin, other: Origin): boolean {
  return one.operator === other.operator && where(one.place) === where(other.place);
}

export interface Tile {
  readonly kind: MemoryKind_Kind;
  /** Null for the owners of this kind that the report does not list. */
  readonly owner: MemoryOwner | null;
  readonly bytes: number;
}

export interface KindTiles {
  readonly kind: MemoryKind_Kind;
  readonly bytes: number;
  readonly tiles: readonly Tile[];
}

/** Memory at the peak by kind, largest first. Each kind has a tile per owner and one for those not listed. */
export function peakTiles({ peak_kinds, peak_owners }: DeviceMemory): KindTiles[] {
  return peak_kinds
    .filter(({ bytes: size }) => size > 0)
    .map(({ kind, bytes: size }) => {
      const owners = peak_owners
        .filter((owner) => owner.kind === kind && owner.bytes > 0)
        .map((owner): Tile => ({ kind, owner, bytes: owner.bytes }));
      const rest = size - owners.reduce((sum, tile) => sum + tile.bytes, 0);
      owners.sort((a, b) => b.bytes - a.bytes);
      return {
        kind,
        bytes: size,
        tiles: rest > 0 ? [...owners, { kind, owner: null, bytes: rest }] : owners,
      };
    })
    .sort((a, b) => b.bytes - a.bytes);
}

/** The owner in words, or "" if only the kind is known. */
export function tileTitle({ owner }: Tile): string {
  if (!owner) return "others";
  return [who(owner), where(owner.place)].filter((part) => part !== "").join(" · ");
}

/** A title without folders, which would fill a tile: `train.py:7 in keep`. */
export function onTile(title: string): string {
  return title.replace(/[^\s(]*\//g, "");
}

/** "12 allocations, largest 4 MiB". */
export function tileDetail({ owner }: Tile): string {
  if (!owner) return "";
  return `${plural(owner.count, "allocation")}, largest ${bytes(owner.largest_bytes)}`;
}

export interface Span {
  readonly start_us: number;
  readonly end_us: number;
}

/** Name a range by its step, or else by its start and end. */
export function spanName(span: Span, steps: readonly (Span & { readonly name: string })[]): string {
  const step = steps.find((mark) => mark.start_us === span.start_us && mark.end_us === span.end_us);
  if (step) return stepName(step.name);
  const fine = (span.end_us - span.start_us) / 100;
  return `${moment(span.start_us, fine)} to ${moment(span.end_us, fine)}`;
}

/** "ProfilerStep#12" becomes "Step 12". */
export function stepName(name: string): string {
  const number = /^ProfilerStep#(\d+)$/.exec(name)?.[1];
  return number ? `Step ${count(Number(number))}` : name;
}

/** When memory was allocated, from the recording's start. */
export function whenMade(us: number): string {
  return us < 0 ? "before the recording" : time(us);
}
