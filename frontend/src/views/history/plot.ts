// Sets up uPlot for a value over the recordings of a run, which are equally far apart.

import uPlot from "uplot";
import { theme } from "../../canvas/theme";
import { sizeMark } from "../../state/memoryCurve";
import { percent, timeMark } from "../../base/format";
import type { Curves } from "../../state/history";
import type { Scheme } from "../../base/vocabulary";

export const AXIS_PX = 74;
export const RIGHT_PX = 48;
export const HEIGHT_PX = 170;

export interface Drawn {
  readonly curves: Curves;
  readonly scheme: Scheme;
  /** When each recording was made, as its label on the axis. */
  readonly labels: readonly string[];
  /** Indexes of the first recordings after a change; NaN for one that is not shown. */
  readonly changes: readonly number[];
  /** The recording under the pointer. */
  readonly at: number | null;
}

const FONT = '11px "Inter Variable", system-ui, sans-serif';
const LABEL_PX = 110;

/** Of more points, each has less than a dot's room. */
const MOST_MARKED = 200;

/** Opacity of the band between the quartiles, as two hexadecimal digits. */
const BAND = "33";

/** Powers of two, so that sizes are whole KiB, MiB or GiB. */
const STEPS_BYTES = Array.from({ length: 50 }, (_, power) => 2 ** power);

export function makePlot(host: HTMLElement, width: number, drawn: () => Drawn): uPlot {
  const { curves, labels } = drawn();
  const grid = { stroke: () => theme(drawn().scheme).faint, width: 1 };
  const axis = { stroke: () => theme(drawn().scheme).muted, font: FONT, ticks: { show: false }, grid };
  const [upper, lower] = curves.band ?? [];
  return new uPlot(
    {
      width,
      height: HEIGHT_PX,
      padding: [10, RIGHT_PX, 0, 0],
      legend: { show: false },
      cursor: { show: false },
      scales: {
        x: { time: false, range: () => [-0.5, labels.length - 0.5] },
        y: {
          range: (_, __, most) => {
            const top = Math.min(most, curves.highest ?? Infinity);
            const max = Math.max(top, ...(curves.base ?? []).map(({ value }) => value));
            return [0, max > 0 ? max * 1.06 : 1];
          },
        },
      },
      axes: [
        {
          ...axis,
          size: 24,
          grid: { show: false },
          splits: (plot) => {
            const room = Math.max(1, Math.floor(plot.bbox.width / devicePixelRatio / LABEL_PX));
            const every = roundUp(labels.length / room);
            return labels.flatMap((_, at) => (at % every === 0 ? [at] : []));
          },
          values: (_, splits) => splits.map((at) => drawn().labels[at] ?? ""),
        },
        {
          ...axis,
          size: AXIS_PX,
          space: 34,
          ...(curves.unit === "bytes" ? { incrs: STEPS_BYTES } : {}),
          values: (_, splits, __, ___, step) =>
            splits.map((value) => markText(curves.unit, value, splits.at(-1) ?? 0, step)),
        },
      ],
      series: [
        {},
        ...curves.lines.map(({ color, filled, edge }) => ({
          stroke: () => (edge ? "transparent" : color(drawn().scheme)),
          width: edge || filled ? 0 : 1.5,
          spanGaps: curves.joined === true,
          ...(filled ? { fill: () => color(drawn().scheme) } : {}),
          points: {
            show: !edge && !filled && labels.length <= MOST_MARKED,
            size: 6,
            fill: () => color(drawn().scheme),
            stroke: () => color(drawn().scheme),
          },
        })),
      ],
      bands:
        upper !== undefined && lower !== undefined
          ? [
              {
                series: [upper + 1, lower + 1],
                fill: () => (curves.lines[upper]?.color(drawn().scheme) ?? "") + BAND,
              },
            ]
          : [],
      hooks: {
        draw: [(plot) => drawOver(plot, drawn())],
      },
    },
    dataOf(drawn()),
    host,
  );
}

/** The next of 1, 2, 5, 10, 20, 50, … */
function roundUp(value: number): number {
  const power = 10 ** Math.max(0, Math.floor(Math.log10(value)));
  return ([1, 2, 5].find((digit) => digit * power >= value) ?? 10) * power;
}

/** A mark of the axis of values: all are in one unit. */
function markText(unit: Curves["unit"], value: number, largest: number, step: number): string {
  if (unit === "bytes") return sizeMark(value, step);
  return unit === "time" ? timeMark(value, largest) : percent(value);
}

export function dataOf({ curves, labels }: Drawn): uPlot.AlignedData {
  return [labels.map((_, at) => at), ...curves.lines.map(({ values }) => [...values])];
}

/** Draw the base's lines, a dashed one before each change with its number, and one at the recording under the pointer. */
function drawOver(plot: uPlot, { curves, changes, at, scheme }: Drawn): void {
  const { ctx } = plot;
  const { top, height } = plot.bbox;
  const colors = theme(scheme);
  const line = (index: number) => {
    const x = plot.valToPos(index, "x", true);
    ctx.beginPath();
    ctx.moveTo(x, top);
    ctx.lineTo(x, top + height);
    ctx.stroke();
    return x;
  };
  ctx.save();
  ctx.lineWidth = devicePixelRatio;
  ctx.strokeStyle = colors.muted;
  if (at !== null) line(at);
  ctx.strokeStyle = colors.accent;
  ctx.fillStyle = colors.accent;
  ctx.font = `600 ${11 * devicePixelRatio}px "Inter Variable", system-ui, sans-serif`;
  ctx.textBaseline = "top";
  // uPlot leaves the alignment of its last label.
  ctx.textAlign = "left";
  for (const { name, value } of curves.base ?? []) {
    const y = plot.valToPos(value, "y", true);
    ctx.beginPath();
    ctx.moveTo(plot.bbox.left, y);
    ctx.lineTo(plot.bbox.left + plot.bbox.width, y);
    ctx.strokeStyle = colors.text;
    ctx.stroke();
    ctx.fillStyle = colors.text;
    ctx.fillText(name, plot.bbox.left + 6 * devicePixelRatio, y + 3 * devicePixelRatio);
  }
  ctx.strokeStyle = colors.accent;
  ctx.fillStyle = colors.accent;
  ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
  changes.forEach((point, index) => {
    const x = line(point - 0.5);
    ctx.fillText(String(index + 1), x + 4 * devicePixelRatio, top);
  });
  ctx.restore();
}
