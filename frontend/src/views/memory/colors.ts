// The colors of the memory chart.

import type { Scheme } from "../../base/causes";

export interface ChartColors {
  readonly allocated: string;
  readonly filled: string;
  /** Between the minimum and maximum within one pixel. */
  readonly between: string;
  readonly reserved: string;
  readonly floor: string;
  readonly wedge: string;
  readonly capacity: string;
}

const COLORS: Readonly<Record<Scheme, ChartColors>> = {
  light: {
    allocated: "#407cac",
    filled: "rgb(64 124 172 / 14%)",
    between: "rgb(64 124 172 / 42%)",
    reserved: "#8a7f9e",
    floor: "#c2410c",
    wedge: "rgb(194 65 12 / 14%)",
    capacity: "#b3261e",
  },
  dark: {
    allocated: "#6fabdb",
    filled: "rgb(89 151 198 / 18%)",
    between: "rgb(89 151 198 / 50%)",
    reserved: "#a99dc0",
    floor: "#ff9a62",
    wedge: "rgb(255 154 98 / 16%)",
    capacity: "#ff9a8f",
  },
};

export function chartColors(scheme: Scheme): ChartColors {
  return COLORS[scheme];
}
