// Numbers as people read them. Every number on the page is formatted here.
//
// tb_gpudiag/wording/format.py is its twin. Both must write the same text: tests/wording/format_vectors.json is run
// against each of them.

/** A no-break space. The narrow one, U+202F, is missing from many terminal fonts and code pages. */
const GAP = "\u00a0";

interface Unit {
  readonly name: string;
  readonly size: number;
}

const NS: Unit = { name: "ns", size: 1 };
const TIMES: readonly Unit[] = [
  { name: "s", size: 1e9 },
  { name: "ms", size: 1e6 },
  { name: "µs", size: 1e3 },
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

/** From here on, minutes are easier to read than seconds. */
const MINUTES_FROM_NS = 120e9;

/** The exact value with this many decimals, ties away from zero, thousands with commas, and no "-0". */
function decimal(value: number, places: number): string {
  const [whole = "", fraction] = value.toFixed(places).split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  const text = fraction === undefined ? grouped : `${grouped}.${fraction}`;
  return /^-[0.]*$/.test(text) ? text.slice(1) : text;
}

/** The nearest whole number, ties up. */
function nearest(value: number): number {
  const low = Math.floor(value);
  return low + (value - low >= 0.5 ? 1 : 0);
}

function threeFigures(value: number): string {
  const size = Math.abs(value);
  if (Number.isInteger(value) || size >= 99.95) return decimal(value, 0);
  return decimal(value, size >= 9.995 ? 1 : 2);
}

function scaled(value: number, units: readonly Unit[], smallest: Unit): string {
  if (!Number.isFinite(value)) return "n/a";
  // 999.6 µs is shown as 1.00 ms: round before choosing the unit.
  const unit = units.find((candidate) => Math.abs(value) >= candidate.size * 0.9995) ?? smallest;
  return `${threeFigures(value / unit.size)}${GAP}${unit.name}`;
}

/** A duration with three significant figures in the unit that fits: "812 ns", "3.40 µs", "124 ms", "3 min 20 s". */
export function time(us: number): string {
  const ns = us * 1e3;
  if (Math.abs(ns) < 0.005) return `0${GAP}ms`;
  if (Number.isFinite(ns) && Math.abs(ns) >= MINUTES_FROM_NS) {
    const seconds = nearest(Math.abs(ns) / 1e9);
    return `${ns < 0 ? "-" : ""}${count(Math.floor(seconds / 60))}${GAP}min ${seconds % 60}${GAP}s`;
  }
  return scaled(ns, TIMES, NS);
}

function unitOf(us: number): Unit {
  return TIMES.find(({ size }) => Math.abs(us) * 1e3 >= size * 0.9995) ?? NS;
}

/** A smaller time than this share of a unit is not written in that unit. */
const LEAST_OF_UNIT = 0.1;

/** A time in the unit of one that stands beside it, unless it is far smaller: "0.592 s" beside "1.21 s". */
export function timeBeside(us: number, beside_us: number): string {
  const { name, size } = unitOf(beside_us);
  const value = (us * 1e3) / size;
  const fits = Math.abs(value) >= LEAST_OF_UNIT && Math.abs(value) < 0.9995;
  return fits ? `${decimal(value, 3)}${GAP}${name}` : time(us);
}

/** A mark of a scale up to `largest_us`, in its unit: "0.5 ms" below "1 ms". */
export function timeMark(us: number, largest_us: number): string {
  const { name, size } = unitOf(largest_us);
  return withUnit((us * 1e3) / size, 3, name);
}

/** To the nanosecond, in µs: "1,234.567 µs". */
export function exactTime(us: number): string {
  return `${decimal(us, 3)}${GAP}µs`;
}

/** A moment on the axis, with as many decimals as a grid of `step_us` needs. */
export function moment(us: number, step_us: number): string {
  const unit = TIMES.find((candidate) => Math.max(Math.abs(us), step_us) * 1e3 >= candidate.size) ?? NS;
  const places = Math.min(6, Math.max(0, Math.ceil(-Math.log10((step_us * 1e3) / unit.size) - 1e-9)));
  return `${decimal((us * 1e3) / unit.size, places)}${GAP}${unit.name}`;
}

export interface Column {
  readonly parts: readonly string[];
  readonly total: string;
}

function columnUnit(largest_us: number): Unit & { readonly places: number } {
  // As `time` does, from 1 s on: both stand on one card. A thousandth of the sum is still seen.
  if (largest_us >= 0.9995e6) return { name: "s", size: 1e6, places: largest_us >= 100e6 ? 2 : 3 };
  if (largest_us >= 1e3) return { name: "ms", size: 1e3, places: 2 };
  return { name: "µs", size: 1, places: 1 };
}

/**
 * Format times that stand in a column above their sum: in one unit, so that the printed parts add up to the printed
 * total (those with the largest remainders are rounded up; "< 0.01 ms" counts as 0). If the exact parts do not add up to the total, each is
 * simply rounded: nothing is hidden.
 */
export function column(parts_us: readonly number[], total_us: number): Column {
  if (![total_us, ...parts_us].every(Number.isFinite))
    return { parts: parts_us.map(time), total: time(total_us) };
  const { name, size, places } = columnUnit(Math.max(total_us, ...parts_us));
  const step = size / 10 ** places;
  const wanted = nearest(total_us / step);
  const exact = parts_us.map((part) => part / step);
  const sum = (values: readonly number[]) => values.reduce((all, value) => all + value, 0);
  const missing = wanted - sum(exact.map(Math.floor));
  const addsUp = Math.abs(sum(parts_us) - total_us) <= step / 2 && missing >= 0 && missing <= exact.length;
  const raised = new Set(
    exact
      .map((value, at) => ({ at, remainder: value - Math.floor(value) }))
      .sort((a, b) => b.remainder - a.remainder)
      .slice(0, Math.max(0, missing))
      .map(({ at }) => at),
  );
  const text = (steps: number, value: number) => {
    const something = steps === 0 && value > 0 ? `<${GAP}` : "";
    return `${something}${decimal((something ? 1 : steps) / 10 ** places, places)}${GAP}${name}`;
  };
  return {
    parts: exact.map((value, at) =>
      text(addsUp ? Math.floor(value) + (raised.has(at) ? 1 : 0) : nearest(value), value),
    ),
    total: text(wanted, total_us),
  };
}

/** "39.4%". A share above 0 is never shown as 0%, one below 1 never as 100%. A share of nothing is "n/a". */
export function percent(part: number, whole = 1): string {
  if (!(whole > 0 && Number.isFinite(part) && Number.isFinite(whole))) return "n/a";
  const value = 100 * (part / whole);
  if (value === 0) return "0%";
  if (Math.abs(value) < 0.05) return value > 0 ? `<${GAP}0.1%` : `>${GAP}-0.1%`;
  if (value >= 99.95 && value < 100) return `>${GAP}99.9%`;
  return `${decimal(value, Math.abs(value) < 99.95 ? 1 : 0)}%`;
}

/** A whole number: "1,234". */
export function count(value: number): string {
  return decimal(value, 0);
}

/** "229", "9.40", "0.06": three significant figures. A value above 0 is never shown as 0. */
export function figures(value: number): string {
  if (!Number.isFinite(value)) return "n/a";
  if (value === 0 || Math.abs(value) >= 0.005) return threeFigures(value);
  return value > 0 ? `<${GAP}0.01` : `>${GAP}-0.01`;
}

/** A mark on a scale that chooses its own unit: "1.5 GiB", with no more decimals than it needs. */
export function withUnit(value: number, places: number, unit: string): string {
  const short = decimal(value, places)
    .replace(/(\.\d*?)0+$/, "$1")
    .replace(/\.$/, "");
  return `${short}${GAP}${unit}`;
}

const ORDINALS = new Intl.PluralRules("en", { type: "ordinal" });
const ENDS = { zero: "th", one: "st", two: "nd", few: "rd", many: "th", other: "th" };

/** "1st", "22nd", "113th". */
export function ordinal(n: number): string {
  return `${count(n)}${ENDS[ORDINALS.select(n)]}`;
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

/**
 * A place in the code: "train.py:119 in evaluate" if that line ran, else "resize (image.py, defined at line 390)".
 *
 * Python's twin is `Frame` in frames.py.
 */
export function codePlace({ file, line, line_kind, function: name }: CodePlace): string {
  if (file && line > 0 && line_kind !== "DEFINITION") return `${file}:${line}${name ? ` in ${name}` : ""}`;
  const where = file && line > 0 ? `${file}, defined at line ${line}` : file;
  return name && where ? `${name} (${where})` : name || where;
}

/** The same with where the line was before an edit of the file. Python's twin is `code_place`. */
export function movedPlace(place: CodePlace, was: CodePlace | undefined): string {
  return codePlace(place) + (was ? ` (was line ${was.line})` : "");
}

interface CodePlace {
  readonly file: string;
  readonly line: number;
  readonly line_kind: string;
  readonly function: string;
}

/** "host_bound" as it is read: "Host bound". */
export function words(name: string): string {
  const text = name.replaceAll("_", " ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}
