// The colors of the memory chart.

import { MEMORY_LINES, type Scheme } from "../../base/vocabulary";

interface ChartColors {
  readonly allocated: string;
  readonly filled: string;
  /** Between the minimum and maximum within one pixel. */
  readonly between: string;
  readonly reserved: string;
  readonly floor: string;
  readonly wedge: string;
  readonly capacity: string;
}

/** Opacities as two hexadecimal digits: 15% and 45%. */
const FAINT = "26";
const STRONG = "73";

function colorsOf(scheme: Scheme): ChartColors {
  const line = (id: keyof typeof MEMORY_LINES) => MEMORY_LINES[id].color[scheme];
  return {
    allocated: line("allocated"),
    filled: line("allocated") + FAINT,
    between: line("allocated") + STRONG,
    reserved: line("reserved"),
    floor: line("floor"),
    wedge: line("floor") + FAINT,
    capacity: line("capacity"),
  };
}

const COLORS: Readonly<Record<Scheme, ChartColors>> = { light: colorsOf("light"), dark: colorsOf("dark") };

export function chartColors(scheme: Scheme): ChartColors {
  return COLORS[scheme];
}
