// The recordings of a run as curves.

import { cause, paint, partLabel, rank } from "../base/causes";
import { bytes, percent, time } from "../base/format";
import type { Scheme } from "../base/vocabulary";
import type { History, HistoryPoint } from "../wire/report";
import type { BaseFigures } from "./base";

export interface Line {
  readonly name: string;
  /** By recording; null where it is not known. */
  readonly values: readonly (number | null)[];
  readonly color: (scheme: Scheme) => string;
  /** The background in the legend, if it is not the color. */
  readonly paint?: (scheme: Scheme) => string;
  /** Filled down to 0. */
  readonly filled?: boolean;
  /** An edge of the band between the quartiles: not drawn itself. */
  readonly edge?: boolean;
}

export interface Curves {
  readonly title: string;
  readonly about: string;
  readonly lines: readonly Line[];
  /** Indexes of the upper and lower edge of a band. */
  readonly band?: readonly [number, number];
  readonly unit: "time" | "share" | "bytes";
  /** The axis of values ends here at the latest; a band above is cut off. */
  readonly highest?: number;
  /** Lines go on where a value is not known. */
  readonly joined?: boolean;
  /** Lines across the chart at figures of the pinned base. */
  readonly base?: readonly { readonly name: string; readonly value: number }[];
}

/** 0 means that the recording does not say. */
export function known(values: readonly number[]): (number | null)[] {
  return values.map((value) => (value > 0 ? value : null));
}

export function accent(scheme: Scheme): string {
  return cause("computing").color[scheme];
}

/** Figures of the base that it has. */
function across(...lines: readonly (readonly [string, number | undefined])[]): Pick<Curves, "base"> {
  const base = lines.flatMap(([name, value]) => (value ? [{ name, value }] : []));
  return base.length > 0 ? { base } : {};
}

/** Return the charts of a history. A chart without any value is left out. */
export function curvesOf({ points }: History, base: BaseFigures | null = null): Curves[] {
  const all: Curves[] = [
    {
      title: "Step time",
      about: "median, and the quartiles as a band",
      unit: "time",
      band: [1, 2],
      ...across(["base", base?.step_us]),
      lines: [
        { name: "median", values: known(points.map(({ step_us }) => step_us)), color: accent },
        {
          name: "upper quartile",
          values: known(points.map(({ high_step_us }) => high_step_us)),
          color: accent,
          edge: true,
        },
        {
          name: "lower quartile",
          values: known(points.map(({ low_step_us }) => low_step_us)),
          color: accent,
          edge: true,
        },
      ],
    },
    { title: "Step by cause", about: "mean step, stacked", unit: "time", lines: stacked(points) },
    {
      title: "GPU busy",
      about: "share of the step window",
      unit: "share",
      ...across(["base", base?.busy_share]),
      lines: [{ name: "GPU busy", values: known(points.map(({ busy_share }) => busy_share)), color: accent }],
    },
    {
      title: "Memory",
      about: "peak and floor of allocated memory",
      unit: "bytes",
      ...across(["base, peak", base?.peak_bytes], ["base, floor", base?.floor_bytes]),
      lines: [
        { name: "peak", values: known(points.map(({ peak_bytes }) => peak_bytes)), color: accent },
        {
          name: "floor",
          values: known(points.map(({ floor_bytes }) => floor_bytes)),
          color: (scheme) => cause("input").color[scheme],
        },
      ],
    },
  ];
  return all.filter(({ lines }) => lines.some(({ values }) => values.some((value) => value !== null)));
}

/** Causes as areas on top of one another. */
function stacked(points: readonly HistoryPoint[]): Line[] {
  const shares = points.map((point) => new Map(point.shares.map(({ cause: name, us }) => [name, us])));
  const names = [...new Set(shares.flatMap((found) => [...found.keys()]))].sort((a, b) => rank(a) - rank(b));
  return stackedLines(
    names
      .filter((name) => shares.some((found) => (found.get(name) ?? 0) > 0))
      .map((name) => ({
        name: partLabel(name),
        us: shares.map((found) => found.get(name) ?? 0),
        color: (scheme) => cause(name).color[scheme],
        paint: (scheme) => paint(name, scheme),
      })),
  );
}

/** Lines of sums, from the lowest part up. The highest comes first, so that the others are drawn over it. */
export function stackedLines(
  parts: readonly (Pick<Line, "name" | "color" | "paint"> & { readonly us: readonly number[] })[],
): Line[] {
  const sums: number[] = [];
  return parts
    .map(({ us, ...part }): Line => {
      us.forEach((value, at) => {
        sums[at] = (sums[at] ?? 0) + value;
      });
      return { ...part, values: known(sums), filled: true };
    })
    .reverse();
}

export function valueText(unit: Curves["unit"], value: number): string {
  return unit === "time" ? time(value) : unit === "share" ? percent(value) : bytes(value);
}
