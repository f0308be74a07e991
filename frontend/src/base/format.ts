// Numbers as people read them, by the same rules as on the command line. Every number on the page goes through here.

/** Between a number and its unit: narrow, and no line ends there. */
const GAP = "\u202f";

interface Unit {
  readonly name: string;
  readonly size: number;
}

const NS: Unit = { name: "ns", size: 1e-3 };
const TIMES: readonly Unit[] = [
  { name: "s", size: 1e6 },
  { name: "ms", size: 1e3 },
  { name: "µs", size: 1 },
  NS,
];
const BYTE: Unit = { name: "B", size: 1 };
const SIZES: readonly Unit[] = [
  { name: "TiB", size: 2 ** 40 },
  { name: "GiB", size: 2 ** 30 },
  { name: "MiB", size: 2 ** 20 },
  { name: "KiB", size: 2 ** 10 },
  BYTE,
];

function decimal(value: number, places: number): string {
  return value.toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places });
}

function threeFigures(value: number): string {
  const size = Math.abs(value);
  if (Number.isInteger(value) || size >= 99.95) return decimal(value, 0);
  return decimal(value, size >= 9.995 ? 1 : 2);
}

function scaled(value: number, units: readonly Unit[], smallest: Unit): string {
  if (!Number.isFinite(value)) return "n/a";
  // 999.6 µs is shown as 1 ms: round before choosing the unit.
  const unit = units.find((candidate) => Math.abs(value) >= candidate.size * 0.9995) ?? smallest;
  return `${threeFigures(value / unit.size)}${GAP}${unit.name}`;
}

/** A duration with three significant figures in the unit that fits: "812 ns", "3.4 µs", "124 ms", "2.13 s". */
export function time(us: number): string {
  if (us === 0) return `0${GAP}ms`;
  if (Math.abs(us) >= 120e6 && Number.isFinite(us)) {
    const seconds = Math.round(Math.abs(us) / 1e6);
    return `${us < 0 ? "-" : ""}${count(Math.floor(seconds / 60))}${GAP}min ${seconds % 60}${GAP}s`;
  }
  return scaled(us, TIMES, NS);
}

/** To the nanosecond, in µs: "1,234.567 µs". */
export function exactTime(us: number): string {
  return `${decimal(us, 3)}${GAP}µs`;
}

/** A moment on the axis, with as many decimals as a grid of `step_us` needs. */
export function moment(us: number, step_us: number): string {
  const unit = TIMES.find((candidate) => Math.max(Math.abs(us), step_us) >= candidate.size) ?? NS;
  const places = Math.min(6, Math.max(0, Math.ceil(-Math.log10(step_us / unit.size) - 1e-9)));
  return `${decimal(us / unit.size, places)}${GAP}${unit.name}`;
}

export interface Column {
  readonly parts: readonly string[];
  readonly total: string;
}

/**
 * Times that stand under one another with their sum: one unit, and as printed they add up. Each is rounded up or down
 * so that the printed parts sum to the printed total (largest remainders go up). Where the parts do not add up to the
 * total to begin with, each is simply rounded: nothing is hidden.
 */
export function column(parts_us: readonly number[], total_us: number): Column {
  const largest = Math.max(0, total_us, ...parts_us);
  const unit =
    largest >= 100e6
      ? { name: "s", size: 1e6 }
      : largest >= 1e3
        ? { name: "ms", size: 1e3 }
        : { name: "µs", size: 1 };
  const places = unit.name === "µs" ? 1 : 2;
  const step = unit.size / 10 ** places;
  const wanted = Math.round(total_us / step);
  const exact = parts_us.map((part) => part / step);
  const whole = exact.map(Math.floor);
  const missing = wanted - whole.reduce((sum, value) => sum + value, 0);
  const sum_us = parts_us.reduce((sum, value) => sum + value, 0);
  const addsUp = Math.abs(sum_us - total_us) <= step / 2 && missing >= 0 && missing <= parts_us.length;
  const raised = new Set(
    exact
      .map((value, at) => ({ at, remainder: value - Math.floor(value) }))
      .sort((a, b) => b.remainder - a.remainder)
      .slice(0, Math.max(0, missing))
      .map(({ at }) => at),
  );
  const text = (steps: number) => `${decimal((steps * step) / unit.size, places)}${GAP}${unit.name}`;
  return {
    parts: exact.map((value, at) =>
      text(addsUp ? Math.floor(value) + (raised.has(at) ? 1 : 0) : Math.round(value)),
    ),
    total: text(wanted),
  };
}

/** A share as percent: "39.4 %"; never 0 % for something, never 100 % for less than all; "n/a" of nothing. */
export function percent(part: number, whole = 1): string {
  if (!(whole > 0)) return "n/a";
  const value = (100 * part) / whole;
  if (value > 0 && value < 0.05) return `<${GAP}0.1${GAP}%`;
  if (value >= 99.95 && value < 100) return `>${GAP}99.9${GAP}%`;
  return `${decimal(value, value < 99.95 ? 1 : 0)}${GAP}%`;
}

export function count(value: number): string {
  return value.toLocaleString("en-US");
}

/** A mean of counts: "229", "9.40", "0.06"; never 0 for something. */
export function mean(value: number): string {
  return value > 0 && value < 0.005 ? `<${GAP}0.01` : threeFigures(value);
}

/** "1 step", "3 steps". */
export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

export function bytes(size: number): string {
  return scaled(size, SIZES, BYTE);
}

/** A Unix time in the reader's time zone, to the second: "2026-03-01 14:05:09". */
export function date(unix_s: number): string {
  // Swedish writes dates as ISO 8601 does.
  return new Date(unix_s * 1000).toLocaleString("sv-SE");
}

/** With a capital letter and a full stop, where it has none. */
export function sentence(text: string): string {
  if (text === "") return "";
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
}

/** A line of code: "train.py:12". */
export function codeLine({ file, line }: { readonly file: string; readonly line: number }): string {
  return file && line > 0 ? `${file}:${line}` : file;
}

/** "host_bound" as it is read: "Host bound". */
export function words(name: string): string {
  const text = name.replaceAll("_", " ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}
