// The colours of the canvas. Causes keep the colours that they have everywhere else.

import { cause, type Scheme } from "../base/causes";

export const FONT = '"Inter Variable", system-ui, sans-serif';

/** The categories of trace/events.py that the timeline draws, and those that it adds to them. */
const KINDS: Readonly<
  Record<number, { readonly label: string; readonly light: string; readonly dark: string }>
> = {
  0: { label: "Event", light: "#cfd4da", dark: "#4a5058" },
  1: { label: "Operator", light: "#bcd7c4", dark: "#3f6350" },
  2: { label: "Annotation", light: "#d6cbe9", dark: "#564a78" },
  3: { label: "Python function", light: "#e6dec4", dark: "#575039" },
  4: { label: "Runtime call", light: "#edc8b9", dark: "#7a4f3e" },
  5: { label: "Driver call", light: "#e4b9a8", dark: "#6d4536" },
  6: { label: "Kernel", light: cause("computing").colour.light, dark: cause("computing").colour.dark },
  7: { label: "Copy", light: cause("copying").colour.light, dark: cause("copying").colour.dark },
  8: { label: "Set", light: cause("copying").colour.light, dark: cause("copying").colour.dark },
  9: { label: "Annotation on the GPU", light: "#d6cbe9", dark: "#564a78" },
  10: {
    label: "Profiler overhead",
    light: cause("profiler").colour.light,
    dark: cause("profiler").colour.dark,
  },
  11: { label: "Synchronisation", light: "#e9b3ac", dark: "#7d453e" },
  13: {
    label: "Communication",
    light: cause("communicating").colour.light,
    dark: cause("communicating").colour.dark,
  },
};

export const KERNEL_KIND = 6;

/** What a legend names, work of the GPU first. */
const LEGEND: readonly number[] = [6, 13, 7, 8, 9, 2, 1, 3, 4, 5, 11, 10, 0];

/** The colours of these kinds and what each stands for; kinds of one colour stand together. */
export function legend(kinds: ReadonlySet<number>, scheme: Scheme): ReadonlyMap<string, string> {
  const labels = new Map<string, string>();
  for (const kind of LEGEND.filter((one) => kinds.has(one))) {
    const { colour } = kindFill(kind, scheme);
    const before = labels.get(colour);
    const label = kindLabel(kind);
    labels.set(colour, before ? `${before}, ${label.toLowerCase()}` : label);
  }
  return labels;
}

export function kindLabel(kind: number): string {
  return (KINDS[kind] ?? KINDS[0])?.label ?? "";
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

const THEMES: Readonly<Record<Scheme, Theme>> = {
  light: {
    surface: "#ffffff",
    ruler: "#f5f7f9",
    line: "#dfe3e8",
    faint: "#eef1f4",
    text: "#1d2329",
    muted: "#66717d",
    accent: "#1f5fbf",
    band: "rgb(31 95 191 / 7%)",
    stripe: "rgb(255 255 255 / 45%)",
  },
  dark: {
    surface: "#212429",
    ruler: "#272b31",
    line: "#3a4048",
    faint: "#2b3036",
    text: "#e8ebee",
    muted: "#99a3ae",
    accent: "#7fb0f5",
    band: "rgb(127 176 245 / 9%)",
    stripe: "rgb(0 0 0 / 35%)",
  },
};

export function theme(scheme: Scheme): Theme {
  return THEMES[scheme];
}

export interface Fill {
  readonly colour: string;
  readonly text: string;
  readonly hatched: boolean;
}

/** Black or white, whichever can be read on "#rrggbb". */
export function textOn(colour: string): string {
  return luminance(colour) > 0.32 ? "#1b2026" : "#ffffff";
}

const fills = new Map<string, Fill>();

function remember(key: string, colour: string, hatched: boolean): Fill {
  const fill = { colour, text: textOn(colour), hatched };
  fills.set(key, fill);
  return fill;
}

export function causeFill(name: string, scheme: Scheme): Fill {
  const key = `${scheme}/cause/${name}`;
  const { colour, hatched } = cause(name);
  return fills.get(key) ?? remember(key, colour[scheme], hatched ?? false);
}

export function kindFill(kind: number, scheme: Scheme): Fill {
  const key = `${scheme}/kind/${kind}`;
  const known = fills.get(key);
  if (known) return known;
  const colour = (KINDS[kind] ?? KINDS[0])?.[scheme] ?? "#888888";
  return remember(key, colour, false);
}

/** Relative luminance (WCAG) of "#rrggbb". */
function luminance(colour: string): number {
  const [r = 0, g = 0, b = 0] = [1, 3, 5].map((at) => {
    const value = Number.parseInt(colour.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
