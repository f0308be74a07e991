// What the report says of one device's memory, in words and as parts to show. No figure is computed again.

import { bytes, codeLine, count, moment, percent, plural, time } from "../base/format";
import type { DeviceMemory, FloorTrend, MemoryOwner, Place } from "../wire/report";

export function memoryLabel({ device }: DeviceMemory): string {
  return device < 0 ? "CPU" : `GPU ${device}`;
}

/** "+8 MiB", "−3 KiB": how a size changes. */
export function change(size: number): string {
  return `${size < 0 ? "−" : "+"}${bytes(Math.abs(size))}`;
}

const PHASES: Readonly<Record<string, string>> = {
  forward: ", in the forward pass",
  backward: ", in the backward pass",
  optimizer: ", in the optimizer",
  zero_grad: ", where gradients are zeroed",
};

/** Peak, reserved, capacity: one sentence. */
export function peakSentence(memory: DeviceMemory): string {
  const { peak_allocated_bytes: peak, reserved_at_peak_bytes: reserved, capacity_bytes: capacity } = memory;
  const held = reserved > 0 ? `, ${bytes(reserved)} reserved` : "";
  const most = reserved > 0 ? reserved : peak;
  const of = capacity > 0 ? ` of ${bytes(capacity)} (${percent(most, capacity)})` : "";
  const phase = PHASES[memory.peak_phase] ?? "";
  return `At its peak, ${time(memory.peak_us)} after the start${phase}, ${bytes(peak)} are allocated${held}${of}.`;
}

/** What the steps' floor does: one sentence, or two. */
export function floorSentence({ trend, steps_until_full: left }: DeviceMemory): string {
  if (!trend) return "Without three steps or more nothing can be said about growth.";
  const full =
    trend.state === "rising" && left > 0 ? ` At this rate memory is full after ${more(left, trend)}.` : "";
  return `The floor ${does(trend)}.${full}`;
}

function does(trend: FloorTrend): string {
  switch (trend.state) {
    case "rising":
      return `rises by ${perUnit(trend, 1)}`;
    case "falling":
      return `falls by ${perUnit(trend, -1)}`;
    case "level":
      return "stays level";
    case "plateau":
      return "has risen, and stays where it is";
    default:
      return `changes by ${perUnit(trend, 1)}, but not clearly`;
  }
}

function more(left: number, { unit }: FloorTrend): string {
  return unit === "second" ? time(left * 1e6) : plural(Math.max(1, Math.floor(left)), "more step");
}

/** Fewer floors cannot tell a slope with so much confidence. */
const FEWEST_FOR_95 = 4;

/** "8 MiB a step (95 % confidence: 7.9 MiB to 8.1 MiB)". */
function perUnit(trend: FloorTrend, sign: 1 | -1): string {
  const { bytes_per_step, low_bytes_per_step, high_bytes_per_step, steps, unit } = trend;
  const [low = 0, high = 0] = [sign * low_bytes_per_step, sign * high_bytes_per_step].sort((a, b) => a - b);
  const between =
    steps < FEWEST_FOR_95 || bytes(low) === bytes(high)
      ? ""
      : ` (95\u202f% confidence: ${bytes(low)} to ${bytes(high)})`;
  return `${bytes(sign * bytes_per_step)} a ${unit}${between}`;
}

/** What the curve does not hold, where it does not hold everything. */
export function caveat({ device, relative }: DeviceMemory): string {
  if (relative) {
    return (
      "This recording has no totals: the curve counts from its beginning, " +
      "and what was allocated before is in it only as far as it was freed."
    );
  }
  if (device < 0) return "Of the CPU only what was allocated while a profiler ran is counted.";
  return "";
}

/** "aten::mm in Linear": the operator and the module that it ran for, as far as they are known. */
export function who({ operator, module }: { readonly operator: string; readonly module: string }): string {
  return operator && module ? `${operator} in ${module}` : operator || module;
}

/** "train.py:12", or else the function. */
export function where(place: Place | undefined): string {
  return place ? codeLine(place) || place.function : "";
}

interface Origin {
  readonly operator: string;
  readonly place: Place | undefined;
}

/** Whether an owner of the peak and a site of a range are the same operator at the same line. */
export function sameSite(one: Origin, other: Origin): boolean {
  return one.operator === other.operator && where(one.place) === where(other.place);
}

export interface Tile {
  readonly kind: string;
  /** Null: the owners of this kind that the report does not list. */
  readonly owner: MemoryOwner | null;
  readonly bytes: number;
}

export interface KindTiles {
  readonly kind: string;
  readonly bytes: number;
  readonly tiles: readonly Tile[];
}

/** The peak as kinds, each with its owners and one tile for those that are not listed; largest first. */
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

/** Empty where nothing is known but the kind. */
export function tileTitle({ owner }: Tile): string {
  if (!owner) return "others";
  return [who(owner), where(owner.place)].filter((part) => part !== "").join(" · ");
}

/** "12 allocations, the largest 4 MiB". */
export function tileDetail({ owner }: Tile): string {
  if (!owner) return "";
  return `${plural(owner.count, "allocation")}, the largest ${bytes(owner.largest_bytes)}`;
}

export interface Span {
  readonly start_us: number;
  readonly end_us: number;
}

/** The name of a range: the step that it is, or from when to when. */
export function spanName(span: Span, steps: readonly (Span & { readonly name: string })[]): string {
  const step = steps.find((mark) => mark.start_us === span.start_us && mark.end_us === span.end_us);
  if (step) return stepName(step.name);
  const fine = (span.end_us - span.start_us) / 100;
  return `${moment(span.start_us, fine)} to ${moment(span.end_us, fine)}`;
}

/** "ProfilerStep#12" as it is read. */
export function stepName(name: string): string {
  const number = /^ProfilerStep#(\d+)$/.exec(name)?.[1];
  return number ? `Step ${count(Number(number))}` : name;
}
