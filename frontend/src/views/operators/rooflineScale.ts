// Logarithmic scales of the roofline plot.

import type { RooflinePlot, RooflinePoint } from "../../wire/report";

export interface Scale {
  readonly low: number;
  readonly high: number;
}

/** A point of the plot: FLOP for each byte, and TFLOP/s. */
export interface Placed {
  readonly point: RooflinePoint;
  readonly intensity: number;
  readonly teraflops: number;
}

/** Return the points with arithmetic. Those without have no place on logarithmic scales. */
export function placedPoints(points: readonly RooflinePoint[]): Placed[] {
  return points
    .filter(({ operations, bytes, us }) => operations > 0 && bytes > 0 && us > 0)
    .map((point) => ({
      point,
      intensity: point.operations / point.bytes,
      teraflops: point.operations / point.us / 1e6,
    }));
}

/** Return whole decades around all values. */
export function decades(values: readonly number[]): Scale {
  const known = values.filter((value) => value > 0);
  if (known.length === 0) return { low: 0, high: 1 };
  const low = Math.floor(Math.log10(Math.min(...known)));
  return { low, high: Math.max(low + 1, Math.ceil(Math.log10(Math.max(...known)))) };
}

/** Return where a value is between the ends of the scale, 0 to 1. */
export function at({ low, high }: Scale, value: number): number {
  return (Math.log10(value) - low) / (high - low);
}

/** Return the intensity at which a peak rate is reached: the corner of its roof. */
export function ridge(plot: RooflinePlot, teraflops: number): number {
  return plot.bandwidth > 0 ? teraflops / plot.bandwidth : 0;
}
