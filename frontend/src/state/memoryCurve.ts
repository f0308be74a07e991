// The curves of a memory slice on one time axis, and how much of the scale they need.

import type { Viewport } from "../base/viewport";
import type { Curve, MemorySlice } from "../wire/report";

/** Columns of equal length; a value holds from its time to the next one's. NaN: not known. */
export interface Columns {
  readonly time_us: number[];
  readonly low: number[];
  readonly high: number[];
  readonly reserved: number[];
}

const NO_CURVE: Curve = { time_us: [], low: [], high: [] };

/** Both curves on the union of their times, drawn on to the slice's end. */
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

/** The column that holds at this time; -1 before the first. */
export function columnAt({ time_us }: Columns, at_us: number): number {
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

/** Finer than this a mark on the axis is written in the next smaller unit. */
const MOST_PLACES = 2;

/** A size on an axis whose marks stand `step` apart, a power of two: as exact as they need to differ. */
export function sizeMark(size: number, step: number): string {
  let unit = Math.min(Math.floor(Math.log2(Math.max(Math.abs(size), 1)) / 10), UNITS.length - 1);
  const places = () => Math.max(0, 10 * unit - Math.log2(step));
  while (unit > 0 && places() > MOST_PLACES) unit -= 1;
  const value = (size / 1024 ** unit).toLocaleString("en-US", { maximumFractionDigits: MOST_PLACES });
  return `${value}\u202f${UNITS[unit] ?? ""}`;
}

export interface Scale {
  readonly min: number;
  readonly max: number;
  /** Whether the capacity lies on the scale. */
  readonly capacity: boolean;
}

/** A curve that fills this share of the capacity is shown below it; a smaller one would be squashed. */
const NEAR_CAPACITY = 0.6;

/** A curve that never falls below this share of its top is shown from near its bottom: from 0 its changes would be lost. */
const FLAT = 0.7;

const AIR = 0.07;

/** The bytes that a chart of `view` shows. */
export function scaleOf(columns: Columns, view: Viewport, capacity_bytes: number): Scale {
  let least = Infinity;
  let most = -Infinity;
  const first = Math.max(0, columnAt(columns, view.start_us));
  for (let at = first; at < columns.time_us.length; at += 1) {
    if ((columns.time_us[at] ?? 0) > view.end_us) break;
    least = Math.min(least, columns.low[at] ?? NaN);
    for (const value of [columns.high[at], columns.reserved[at]])
      if (value !== undefined && value > most) most = value;
  }
  if (!Number.isFinite(least) || !Number.isFinite(most)) return { min: 0, max: 1, capacity: false };
  const capacity = capacity_bytes > 0 && most >= NEAR_CAPACITY * capacity_bytes;
  const top = capacity ? Math.max(most, capacity_bytes) : most;
  const air = AIR * Math.max(top - least, 1);
  const flat = least > FLAT * top && top > least;
  const min = flat ? least - air : Math.min(0, least < 0 ? least - air : 0);
  return { min, max: Math.max(top + AIR * Math.max(top - min, 1), min + 1), capacity };
}
