// Sets up uPlot for memory over time. It reads the view, the scale and the colors each time it draws.

import uPlot from "uplot";
import { moment } from "../../base/format";
import { ticks } from "../../base/ticks";
import { theme } from "../../canvas/theme";
import { sizeMark, type Columns } from "../../state/memoryCurve";
import { chartColors } from "./colors";
import { drawBehind, drawOver, HEAD_PX, type Marks } from "./marks";

export const AXIS_PX = 74;
export const RULER_PX = 26;
export const RIGHT_PX = 14;

const FONT = '11px "Inter Variable", system-ui, sans-serif';
const TICKS_APART_PX = 110;

/** Approximate width of a time label. A label that would cross the edge is left out. */
const TIME_PX = 60;

/** Distances between ticks: powers of two, so that sizes are whole KiB, MiB or GiB. */
const STEPS_BYTES = Array.from({ length: 50 }, (_, power) => 2 ** power);

export function makePlot(host: HTMLElement, width: number, height: number, marks: () => Marks): uPlot {
  const grid = { stroke: () => theme(marks().scheme).faint, width: 1 };
  const axis = { stroke: () => theme(marks().scheme).muted, font: FONT, ticks: { show: false }, grid };
  // No ticks in the area above the scale, where the names of the steps are.
  const onScale = (_: uPlot, splits: number[]) =>
    splits.map((size) => (size <= marks().scale.max ? size : null));
  const stepped = uPlot.paths.stepped?.({ align: 1 });
  const line = {
    ...(stepped ? { paths: stepped } : {}),
    points: { show: false },
    spanGaps: false,
  };
  const plot = new uPlot(
    {
      width,
      height,
      padding: [0, RIGHT_PX, 0, 0],
      legend: { show: false },
      cursor: { show: false },
      scales: {
        x: { time: false, range: () => [marks().view.start_us, marks().view.end_us] },
        y: {
          range: () => {
            const { min, max } = marks().scale;
            return [min, max + ((max - min) * HEAD_PX) / Math.max(height - RULER_PX - HEAD_PX, 1)];
          },
        },
      },
      axes: [
        {
          ...axis,
          size: RULER_PX,
          splits: (u, _, min, max) => [
            ...ticks({ start_us: min, end_us: max }, u.bbox.width / devicePixelRatio, TICKS_APART_PX).at_us,
          ],
          values: (u, splits) => {
            const step = (splits[1] ?? 0) - (splits[0] ?? 0) || 1;
            const last_px = u.bbox.width / devicePixelRatio + RIGHT_PX - TIME_PX / 2;
            return splits.map((at) => (u.valToPos(at, "x") > last_px ? null : moment(at, step)));
          },
        },
        {
          ...axis,
          size: AXIS_PX,
          incrs: STEPS_BYTES,
          space: 38,
          grid: { ...grid, filter: onScale },
          filter: onScale,
          values: (_, splits, __, ___, step) =>
            splits.map((size: number | null) => (size === null ? null : sizeMark(size, step))),
        },
      ],
      series: [
        {},
        { ...line, stroke: "transparent", width: 0, fill: () => chartColors(marks().scheme).filled },
        { ...line, stroke: () => chartColors(marks().scheme).allocated, width: 1.25 },
        { ...line, stroke: () => chartColors(marks().scheme).reserved, width: 1.25, dash: [5, 3] },
      ],
      bands: [{ series: [2, 1], fill: () => chartColors(marks().scheme).between }],
      hooks: {
        drawClear: [(u) => drawBehind(u, marks())],
        draw: [(u) => drawOver(u, marks())],
      },
    },
    [[], [], [], []],
    host,
  );
  return plot;
}

/** Convert columns for uPlot, which leaves a gap where a value is null. */
export function dataOf({ time_us, low, high, reserved }: Columns): uPlot.AlignedData {
  const known = (column: readonly number[]) => column.map((value) => (Number.isNaN(value) ? null : value));
  return [time_us, known(low), known(high), known(reserved)];
}
