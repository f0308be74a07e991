// Draws the marks on the memory chart: steps, ranges, floors, their trend, the peak, and the capacity.

import type uPlot from "uplot";
import type { Scheme } from "../../base/vocabulary";
import { bytes } from "../../base/format";
import type { Viewport } from "../../base/viewport";
import { theme } from "../../canvas/theme";
import { stepName } from "../../state/memory";
import type { Scale } from "../../state/memoryCurve";
import type { DeviceMemory, FloorTrend, StepMark } from "../../wire/report";
import { chartColors } from "./colors";

export interface Marks {
  readonly memory: DeviceMemory;
  readonly steps: readonly StepMark[];
  readonly view: Viewport;
  readonly scale: Scale;
  readonly scheme: Scheme;
  readonly selection: Viewport | null;
  /** All places of the table row that is shown. */
  readonly ranges: readonly Viewport[];
  /** The current one of `ranges`. */
  readonly range: Viewport | null;
}

/** Height above the curves, for the names of the steps. */
export const HEAD_PX = 20;

const FONT = '"Inter Variable", system-ui, sans-serif';
const SMALL_PX = 11;
const NAME_FROM_PX = 26;
const POINT_PX = 3.5;

interface Pen {
  readonly ctx: CanvasRenderingContext2D;
  readonly x: (us: number) => number;
  readonly y: (size: number) => number;
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
  /** CSS pixels to canvas pixels. */
  readonly px: number;
}

function penOf(plot: uPlot): Pen {
  const { left, top, width, height } = plot.bbox;
  return {
    ctx: plot.ctx,
    x: (us) => plot.valToPos(us, "x", true),
    y: (size) => plot.valToPos(size, "y", true),
    left,
    top,
    right: left + width,
    bottom: top + height,
    px: window.devicePixelRatio,
  };
}

/** Draw what is behind the curves. */
export function drawBehind(plot: uPlot, marks: Marks): void {
  const pen = penOf(plot);
  const colors = theme(marks.scheme);
  clipped(pen, () => {
    marks.steps.forEach((step) => band(pen, { start_us: step.start_us, end_us: step.start_us }, colors.line));
    pen.ctx.globalAlpha = 0.5;
    for (const range of marks.ranges) band(pen, range, colors.accent, 2);
    pen.ctx.globalAlpha = 1;
    for (const range of [marks.range, marks.selection]) if (range) band(pen, range, colors.band, 2);
  });
}

/** Draw what is in front of the curves. */
export function drawOver(plot: uPlot, marks: Marks): void {
  const pen = penOf(plot);
  const point = 2 * POINT_PX * pen.px;
  clipped(pen, () => {
    drawSelection(pen, marks);
    drawTrend(pen, marks);
  });
  // Do not cut points at the edges.
  clipped({ ...pen, left: pen.left - point, right: pen.right + point, bottom: pen.bottom + point }, () =>
    drawFloors(pen, marks),
  );
  clipped(pen, () => {
    drawPeak(pen, marks);
    drawCapacity(pen, marks);
    drawFailures(pen, marks);
    drawSteps(pen, marks);
  });
}

function clipped({ ctx, left, right, top, bottom }: Pen, draw: () => void): void {
  ctx.save();
  // uPlot does not reset the dashes of the last curve.
  ctx.setLineDash([]);
  ctx.beginPath();
  ctx.rect(left, top, right - left, bottom - top);
  ctx.clip();
  draw();
  ctx.restore();
}

function band({ ctx, x, top, bottom, px }: Pen, range: Viewport, color: string, least_px = 1): void {
  const left = x(range.start_us);
  ctx.fillStyle = color;
  ctx.fillRect(left, top, Math.max(x(range.end_us) - left, least_px * px), bottom - top);
}

function drawSelection(pen: Pen, { selection, range, scheme }: Marks): void {
  for (const chosen of [selection, range]) {
    if (!chosen) continue;
    const edge = (us: number) => band(pen, { start_us: us, end_us: us }, theme(scheme).accent);
    edge(chosen.start_us);
    edge(chosen.end_us);
  }
}

function drawSteps({ ctx, x, left, right, top, px }: Pen, { steps, scheme }: Marks): void {
  ctx.font = `${SMALL_PX * px}px ${FONT}`;
  ctx.fillStyle = theme(scheme).muted;
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  let free = -Infinity;
  for (const step of steps) {
    const from = Math.max(x(step.start_us), left);
    const room = Math.min(x(step.end_us), right) - from - 8 * px;
    if (room < NAME_FROM_PX * px || from < free) continue;
    const name = fitting(ctx, [stepName(step.name), step.name.replace(/^ProfilerStep#/, "")], room);
    if (name) ctx.fillText(name, from + 5 * px, top + (HEAD_PX / 2) * px);
    free = from + room;
  }
}

function fitting(ctx: CanvasRenderingContext2D, names: readonly string[], room: number): string {
  return names.find((name) => ctx.measureText(name).width <= room) ?? "";
}

/** Draw the trend line, and a wedge around its middle for the confidence interval of its slope. */
function drawTrend(pen: Pen, { memory: { trend }, scheme }: Marks): void {
  if (!trend || trend.end_us <= trend.start_us) return;
  const { ctx, px } = pen;
  const colors = chartColors(scheme);
  const [low, high] = wedge(trend);
  ctx.fillStyle = colors.wedge;
  ctx.beginPath();
  line(pen, trend.start_us, low.start_bytes, trend.end_us, low.end_bytes);
  ctx.lineTo(pen.x(trend.end_us), pen.y(high.end_bytes));
  ctx.lineTo(pen.x(trend.start_us), pen.y(high.start_bytes));
  ctx.fill();
  ctx.strokeStyle = colors.floor;
  ctx.lineWidth = 1.5 * px;
  ctx.setLineDash([6 * px, 4 * px]);
  ctx.beginPath();
  line(pen, trend.start_us, trend.start_bytes, trend.end_us, trend.end_bytes);
  ctx.stroke();
  ctx.setLineDash([]);
}

function line({ ctx, x, y }: Pen, from_us: number, from: number, to_us: number, to: number): void {
  ctx.moveTo(x(from_us), y(from));
  ctx.lineTo(x(to_us), y(to));
}

interface Ends {
  readonly start_bytes: number;
  readonly end_bytes: number;
}

/** Lines through the middle of the trend, with the lowest and highest slope of its confidence interval. */
export function wedge(trend: FloorTrend): [Ends, Ends] {
  const middle = (trend.start_bytes + trend.end_bytes) / 2;
  const units =
    trend.unit === "second" ? (trend.end_us - trend.start_us) / 1e6 : Math.max(trend.steps - 1, 1);
  const ends = (slope: number): Ends => ({
    start_bytes: middle - (slope * units) / 2,
    end_bytes: middle + (slope * units) / 2,
  });
  return [ends(trend.low_bytes_per_step), ends(trend.high_bytes_per_step)];
}

function drawFloors({ ctx, x, y, px }: Pen, { memory: { floors }, scheme }: Marks): void {
  ctx.strokeStyle = chartColors(scheme).floor;
  ctx.lineWidth = 1.5 * px;
  for (const { us, bytes: size, excused } of floors) {
    ctx.beginPath();
    ctx.arc(x(us), y(size), POINT_PX * px, 0, 2 * Math.PI);
    // The floor of a warm-up step is hollow, because it is not part of the trend.
    ctx.fillStyle = excused ? theme(scheme).surface : chartColors(scheme).floor;
    ctx.fill();
    ctx.stroke();
  }
}

function drawPeak(pen: Pen, { memory, scheme }: Marks): void {
  const { ctx, x, y, left, right, px } = pen;
  const at = x(memory.peak_us);
  if (at < left - 1 || at > right + 1) return;
  const colors = theme(scheme);
  const top = y(memory.peak_allocated_bytes);
  ctx.fillStyle = colors.text;
  ctx.beginPath();
  ctx.moveTo(at, top);
  ctx.lineTo(at - 4 * px, top - 7 * px);
  ctx.lineTo(at + 4 * px, top - 7 * px);
  ctx.fill();
  const onRight = at < (left + right) / 2;
  ctx.textAlign = onRight ? "left" : "right";
  label(
    pen,
    `Peak ${bytes(memory.peak_allocated_bytes)}`,
    at + (onRight ? 8 : -8) * px,
    top - 7 * px,
    colors,
  );
}

function drawCapacity(pen: Pen, { memory: { capacity_bytes: capacity }, scale, scheme }: Marks): void {
  if (!scale.capacity) return;
  const { ctx, left, right, y, px } = pen;
  ctx.strokeStyle = chartColors(scheme).capacity;
  ctx.lineWidth = 1.5 * px;
  ctx.beginPath();
  ctx.moveTo(left, y(capacity));
  ctx.lineTo(right, y(capacity));
  ctx.stroke();
  ctx.fillStyle = chartColors(scheme).capacity;
  ctx.textAlign = "left";
  // Above the line, and at the left: the curve comes close to it at the end.
  label(pen, `Capacity ${bytes(capacity)}`, left + 6 * px, y(capacity) - 8 * px, theme(scheme));
}

/** Draw a line where an allocation failed, and say how large it was. */
function drawFailures(pen: Pen, { memory: { failures }, scheme }: Marks): void {
  const { left, right, bottom, x, px } = pen;
  const color = chartColors(scheme).capacity;
  let free = -Infinity;
  for (const { us, requested_bytes: requested } of failures) {
    const at = x(us);
    if (at < left - 1 || at > right + 1) continue;
    pen.ctx.fillStyle = color;
    // The last event of a recording is at its right edge.
    pen.ctx.fillRect(Math.min(at, right - 2 * px), pen.top, 2 * px, bottom - pen.top);
    const onRight = at < (left + right) / 2;
    if (at < free) continue;
    free = at + 12 * SMALL_PX * px;
    pen.ctx.textAlign = onRight ? "left" : "right";
    const size = requested > 0 ? `: ${bytes(requested)}` : "";
    label(pen, `Out of memory${size}`, at + (onRight ? 6 : -6) * px, bottom - 12 * px, theme(scheme));
  }
}

/** Draw text with an outline, so that it is readable in front of the curves. */
function label({ ctx, px }: Pen, text: string, x: number, y: number, { surface }: { surface: string }): void {
  ctx.font = `600 ${SMALL_PX * px}px ${FONT}`;
  ctx.textBaseline = "middle";
  ctx.lineWidth = 3 * px;
  ctx.lineJoin = "round";
  ctx.strokeStyle = surface;
  ctx.strokeText(text, x, y);
  ctx.fillText(text, x, y);
}
