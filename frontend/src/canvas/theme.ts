// The colors of the canvas. Causes keep the colors that they have everywhere else.

import { cause } from "../base/causes";
import { EVENT_KINDS, INKS, PALETTE, STRIPES, type Colored, type Scheme } from "../base/vocabulary";

export const FONT = '"Inter Variable", system-ui, sans-serif';

/** By their number on the wire. */
const KINDS: readonly Colored[] = Object.values(EVENT_KINDS);

const IDS = Object.keys(EVENT_KINDS);

export const KERNEL_KIND = IDS.indexOf("kernel");

/** Memory has the color of copies. */
export const MEMORY_KIND = IDS.indexOf("memcpy");

/** Order of the legend, GPU work first. */
const LEGEND = [
  "kernel",
  "communication",
  "memcpy",
  "memset",
  "gpu_user_annotation",
  "user_annotation",
  "cpu_op",
  "python_function",
  "runtime",
  "driver",
  "cuda_sync",
  "overhead",
  "other",
].map((id) => IDS.indexOf(id));

/** The colors of these kinds and their labels. Kinds of one color share an entry. */
export function legend(kinds: ReadonlySet<number>, scheme: Scheme): ReadonlyMap<string, string> {
  const labels = new Map<string, string>();
  for (const kind of LEGEND.filter((one) => kinds.has(one))) {
    const { color } = kindFill(kind, scheme);
    const before = labels.get(color);
    const label = kindLabel(kind);
    labels.set(color, before ? `${before}, ${label.toLowerCase()}` : label);
  }
  return labels;
}

export function kindLabel(kind: number): string {
  return (KINDS[kind] ?? KINDS[0])?.word ?? "";
}

export interface Theme {
  readonly surface: string;
  readonly ruler: string;
  readonly line: string;
  readonly faint: string;
  readonly text: string;
  readonly muted: string;
  readonly accent: string;
  readonly band: string;
  readonly stripe: string;
}

/** Opacity of the band over a selection, as two hexadecimal digits. */
const BAND_ALPHA = "14";

function themeOf(scheme: Scheme): Theme {
  const tone = (name: keyof typeof PALETTE) => PALETTE[name][scheme];
  return {
    surface: tone("surface"),
    ruler: tone("raised"),
    line: tone("line"),
    faint: tone("line-soft"),
    text: tone("text"),
    muted: tone("muted"),
    accent: tone("accent"),
    band: tone("accent") + BAND_ALPHA,
    stripe: STRIPES[scheme],
  };
}

const THEMES: Readonly<Record<Scheme, Theme>> = { light: themeOf("light"), dark: themeOf("dark") };

export function theme(scheme: Scheme): Theme {
  return THEMES[scheme];
}

export interface Fill {
  readonly color: string;
  readonly text: string;
  readonly hatched: boolean;
}

/** Dark or white text, whichever has more contrast on "#rrggbb". */
export function textOn(color: string): string {
  const [dark, white] = INKS;
  return contrast(color, dark) > contrast(color, white) ? dark : white;
}

/** Contrast ratio (WCAG) of two colors. */
function contrast(one: string, other: string): number {
  const [low = 0, high = 0] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

/** Relative luminance (WCAG) of "#rrggbb". */
function luminance(color: string): number {
  const [r = 0, g = 0, b = 0] = [1, 3, 5].map((at) => {
    const value = Number.parseInt(color.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

const fills = new Map<string, Fill>();

function remember(key: string, color: string, hatched: boolean): Fill {
  const fill = { color, text: textOn(color), hatched };
  fills.set(key, fill);
  return fill;
}

export function causeFill(name: string, scheme: Scheme): Fill {
  const key = `${scheme}/cause/${name}`;
  const { color, hatched } = cause(name);
  return fills.get(key) ?? remember(key, color[scheme], hatched);
}

export function kindFill(kind: number, scheme: Scheme): Fill {
  const key = `${scheme}/kind/${kind}`;
  const known = fills.get(key);
  if (known) return known;
  return remember(key, (KINDS[kind] ?? KINDS[0])?.color[scheme] ?? "", false);
}
