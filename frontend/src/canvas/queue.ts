// Paints curves: the depth of one stream's launch queue, counters, and the memory of a device.

import { bytes, count, figures } from "../base/format";
import { toPixel } from "../base/viewport";
import type { Scheme } from "../base/vocabulary";
import type { Row } from "./rows";
import type { Context, Scene } from "./scene";
import { holdingAt, type Depth } from "./slice";
import { FONT, KERNEL_KIND, kindFill, MEMORY_KIND, theme, type Theme } from "./theme";
import type { RowKind } from "./rows";

/** Opacity of what was queued all the time, and of what was queued for only part of it. */
const LEAST_ALPHA = 0.75;
const MOST_ALPHA = 0.35;

/** A small step chart. Its scale runs from 0 to the curve's maximum over the whole trace. */
export function paintCurve(
  context: Context,
  { view, width, slice, scheme }: Scene,
  row: Row,
  queue: Depth,
  top: number,
): void {
  const colors = theme(scheme);
  const bottom = top + row.height - 1;
  const room = row.height - 2;
  const x = (us: number) => Math.min(Math.max(toPixel(view, us, width), -1), width + 1);
  const y = (depth: number) => bottom - (queue.most > 0 ? Math.max(0, depth) / queue.most : 0) * room;
  context.fillStyle = colors.faint;
  context.fillRect(0, bottom, width, 1);
  const first = Math.max(0, holdingAt(queue, view.start_us));
  const last = holdingAt(queue, view.end_us);
  if (last === -1) return;
  context.fillStyle = curveColor(row.kind, scheme);
  for (const [depths, alpha] of [
    [queue.high, MOST_ALPHA],
    [queue.low, LEAST_ALPHA],
  ] as const) {
    context.globalAlpha = alpha;
    context.beginPath();
    context.moveTo(x(queue.time_us[first] ?? 0), bottom);
    for (let at = first; at <= last; at += 1) {
      const level = y(depths[at] ?? 0);
      context.lineTo(x(queue.time_us[at] ?? 0), level);
      context.lineTo(x(queue.time_us[at + 1] ?? slice.end_us), level);
    }
    context.lineTo(x(queue.time_us[last + 1] ?? slice.end_us), bottom);
    context.fill();
  }
  context.globalAlpha = 1;
  scaleLabel(context, curveValue(row.kind, queue.most, row.unit), top, colors);
}

function curveColor(kind: RowKind, scheme: Scheme): string {
  if (kind === "counter") return theme(scheme).muted;
  return kindFill(kind === "memory" ? MEMORY_KIND : KERNEL_KIND, scheme).color;
}

/** A value of a curve, in words. */
export function curveValue(kind: RowKind, value: number, unit: string): string {
  if (kind === "memory") return bytes(value);
  return kind === "counter" ? `${figures(value)} ${unit}`.trim() : count(value);
}

/** Label the upper edge of the chart with its value. */
function scaleLabel(context: Context, text: string, top: number, colors: Theme): void {
  context.font = `10px ${FONT}`;
  context.textBaseline = "middle";
  const length = context.measureText(text).width;
  context.globalAlpha = 0.8;
  context.fillStyle = colors.surface;
  context.fillRect(2, top + 1, length + 6, 12);
  context.globalAlpha = 1;
  context.fillStyle = colors.muted;
  context.fillText(text, 5, top + 7.5);
}
