// The curves of a memory slice on one time axis, and the scale for them.

import { withUnit } from "../base/format";
import type { Viewport } from "../base/viewport";
import type { Curve, MemorySlice } from "../wire/report";

/** Columns of equal length. A value holds from its time to the next one's. NaN means unknown. */
export interface Columns {
  readonly time_us: number[];
  readonly low: number[];
  readonly high: number[];
  readonly reserved: number[];
}

const NO_CURVE: Curve = { time_us: [], low: [], high: [] };

/** Merge both curves on the union of their times, extended to the end of the slice. */
export function columnsOf({ allocated = NO_CURVE, reserved = NO_CURVE, end_us }: MemorySlice): Columns {
  const time_us: number[] = [];
  const found: Columns = { time_us, low: [], high: [], reserved: [] };
  let a = 0;
  let r = 0;
  const push = (at_us: number) => {
    time_us.push(at_us);
    found.low.push(allocated.low[a - 1] ?? NaN);
    found.high.push(allocated.high[a - 1] ?? NaN);
    found.reserved.push(reserved.high[r - 1] ?? NaN);
  };
  while (a < allocated.time_us.length || r < reserved.time_us.length) {
    const next_a = allocated.time_us[a] ?? Infinity;
    const next_r = reserved.time_us[r] ?? Infinity;
    if (next_a <= next_r) a += 1;
    if (next_r <= next_a) r += 1;
    push(Math.min(next_a, next_r));
  }
  if (time_us.length > 0) push(Math.max(end_us, time_us.at(-1) ?? end_us));
  return found;
}

/** Index of the column that holds at this time, or -1 before the first. */
export function columnAt({ time_us }: Pick<Columns, "time_us">, at_us: number): number {
  let low = 0;
  let high = time_us.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((time_us[middle] ?? 0) <= at_us) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"] as const;

/** With more decimals than this, an axis label uses the next smaller unit. */
const MOST_PLACES = 2;

/** Format a size for an axis with ticks every `step` bytes (a power of two), precise enough to differ. */
export function sizeMark(size: number, step: number): string {
  let unit = Math.min(Math.floor(Math.log2(Math.max(Math.abs(size), 1)) / 10), UNITS.length - 1);
  const places = () => Math.max(0, 10 * unit - Math.log2(step));
  while (unit > 0 && places() > MOST_PLACES) unit -= 1;
  return withUnit(size / 1024 ** unit, MOST_PLACES, UNITS[unit] ?? "");
}

export interface Scale {
  readonly min: number;
  readonly max: number;
  /** True if reserved memory fits on the scale, or if it is unknown. */
  readonly reserved: boolean;
  readonly capacity: boolean;
}

/** Show the capacity if the curve reaches this share of it. Otherwise the curve would be squashed. */
const NEAR_CAPACITY = 0.6;

/** If the curve never falls below this share of its maximum, the axis starts above 0 so that changes are visible. */
const FLAT = 0.7;

/** In that case, show reserved memory only within this many curve heights above the curve. */
const FAR = 2;

const AIR = 0.07;

/** Choose the scale for `view`. Allocated memory fills it; reserved memory and capacity are shown if they fit. */
export function scaleOf(columns: Columns, view: Viewport, capacity_bytes: number): Scale {
  const { least, most, reserved } = extremes(columns, view);
  if (least > most) return { min: 0, max: 1, reserved: true, capacity: false };
  const flat = least > FLAT * most && most > least;
  const withReserved = !flat || reserved - most <= FAR * (most - least);
  const filled = withReserved ? Math.max(most, reserved) : most;
  const capacity = capacity_bytes > 0 && !flat && filled >= NEAR_CAPACITY * capacity_bytes;
  const top = capacity ? Math.max(filled, capacity_bytes) : filled;
  const bottom = flat ? least : Math.min(0, least);
  const air = AIR * Math.max(top - bottom, 1);
  return { min: bottom === 0 ? 0 : bottom - air, max: top + air, reserved: withReserved, capacity };
}

/** Extremes of the columns in view. If there are none, `least` is greater than `most`. */
function extremes({ time_us, low, high, reserved }: Columns, view: Viewport) {
  const found = { least: Infinity, most: -Infinity, reserved: -Infinity };
  for (let at = Math.max(0, columnAt({ time_us }, view.start_us)); at < time_us.length; at += 1) {
    if ((time_us[at] ?? 0) > view.end_us) break;
    // Before a curve begins its value is NaN, which fails every comparison.
    const least = low[at] ?? NaN;
    const most = high[at] ?? NaN;
    const held = reserved[at] ?? NaN;
    if (least < found.least) found.least = least;
    if (most > found.most) found.most = most;
    if (held > found.reserved) found.reserved = held;
  }
  return found;
}
