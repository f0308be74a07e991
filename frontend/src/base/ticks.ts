// The ticks of the time ruler: round times, and no more of them than fit.

import { span, type Viewport } from "./viewport";

export interface Ticks {
  readonly step_us: number;
  readonly at_us: readonly number[];
}

export function ticks(view: Viewport, width_px: number, apart_px: number): Ticks {
  const rough = (span(view) / Math.max(width_px, 1)) * apart_px;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step_us = ([1, 2, 5, 10].find((times) => times * power >= rough) ?? 10) * power;
  const at_us: number[] = [];
  for (let n = Math.ceil(view.start_us / step_us); n * step_us <= view.end_us; n += 1)
    at_us.push(n * step_us);
  return { step_us, at_us };
}
