// Paints the depth of a stream's queue.

import { count } from "../base/format";
import { toPixel } from "../base/viewport";
import type { Scene } from "./draw";
import type { Row } from "./rows";
import { holdingAt, type Depth } from "./slice";
import { FONT, KERNEL_KIND, kindFill, theme, type Theme } from "./theme";

/** Colours of a queue: what waited all the time, and what waited at least at one moment of it. */
const LEAST_ALPHA = 0.75;
const MOST_ALPHA = 0.35;

/** A small chart of steps, in the colour of the work that waits, from nothing to the most of the whole trace. */
export function paintQueue(
  context: CanvasRenderingContext2D,
  { view, width, slice, scheme }: Scene,
  row: Row,
  queue: Depth,
  top: number,
): void {
  const colours = theme(scheme);
  const bottom = top + row.height - 1;
  const room = row.height - 2;
  const x = (us: number) => Math.min(Math.max(toPixel(view, us, width), -1), width + 1);
  const y = (depth: number) => bottom - (queue.most > 0 ? depth / queue.most : 0) * room;
  context.fillStyle = colours.faint;
  context.fillRect(0, bottom, width, 1);
  const first = Math.max(0, holdingAt(queue, view.start_us));
  const last = holdingAt(queue, view.end_us);
  if (last === -1) return;
  context.fillStyle = kindFill(KERNEL_KIND, scheme).colour;
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
  scaleLabel(context, count(queue.most), top, colours);
}

/** What the upper edge of a chart stands for. */
function scaleLabel(context: CanvasRenderingContext2D, text: string, top: number, colours: Theme): void {
  context.font = `10px ${FONT}`;
  context.textBaseline = "middle";
  const length = context.measureText(text).width;
  context.globalAlpha = 0.8;
  context.fillStyle = colours.surface;
  context.fillRect(2, top + 1, length + 6, 12);
  context.globalAlpha = 1;
  context.fillStyle = colours.muted;
  context.fillText(text, 5, top + 7.5);
}
