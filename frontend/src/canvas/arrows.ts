// Paints the outline of an event, and arrows from events to those that they lead to.

import { toPixel } from "../base/viewport";
import { topOf, type Row } from "./rows";
import { HEAD_PX, type Arrow, type Context, type Scene, type Spot } from "./scene";
import type { Theme } from "./theme";

const HEAD_LENGTH_PX = 7;

/** An outline around an event, which may be too short to be seen itself. */
export function outline(context: Context, scene: Scene, spot: Spot, color: string, line_px: number): void {
  const row = scene.rows.rows.find(({ key }) => key === spot.lane);
  const { view, width } = scene;
  const left = Math.max(toPixel(view, spot.start_us, width), -2);
  const right = Math.min(toPixel(view, spot.end_us, width), width + 2);
  if (!row || right < 0 || left > width) return;
  const top = topOfDepth(row, spot.depth, scene.scroll);
  if (hidden(scene, row, top)) return;
  context.strokeStyle = color;
  context.lineWidth = line_px;
  context.strokeRect(left + 0.5, top + 0.5, Math.max(2, right - left - 1), row.step - 2);
}

function topOfDepth(row: Row, depth: number, scroll: number): number {
  const line = Math.min(Math.max(depth - row.first, 0), Math.max(Math.round(row.height / row.step) - 1, 0));
  return HEAD_PX + topOf(row, scroll) + (row.kind === "gaps" ? 0 : line) * row.step;
}

/** Rows that scroll are behind those that are pinned. */
function hidden({ rows }: Scene, row: Row, top: number): boolean {
  return !row.pinned && top + row.step <= HEAD_PX + rows.pinned;
}

export function paintArrows(context: Context, scene: Scene, colors: Theme): void {
  context.strokeStyle = colors.accent;
  context.fillStyle = colors.accent;
  context.lineWidth = 1.5;
  for (const arrow of scene.arrows) paintArrow(context, scene, arrow);
}

interface Point {
  readonly x: number;
  readonly y: number;
}

function paintArrow(context: Context, scene: Scene, { kind, from, to }: Arrow): void {
  const begin = pointOf(scene, from, kind === "launch" ? (from.start_us + from.end_us) / 2 : from.end_us);
  const end = pointOf(scene, to, kind === "release" ? to.end_us : to.start_us);
  if (!begin || !end) return;
  const outside = (x: number) => x < -50 || x > scene.width + 50;
  if (outside(begin.x) && outside(end.x) && begin.x < 0 === end.x < 0) return;
  const bend = Math.min(Math.max(Math.abs(end.x - begin.x) / 2, 18), 120);
  context.beginPath();
  context.moveTo(begin.x, begin.y);
  context.bezierCurveTo(begin.x + bend, begin.y, end.x - bend, end.y, end.x, end.y);
  context.stroke();
  context.beginPath();
  context.moveTo(end.x, end.y);
  context.lineTo(end.x - HEAD_LENGTH_PX, end.y - HEAD_LENGTH_PX / 2);
  context.lineTo(end.x - HEAD_LENGTH_PX, end.y + HEAD_LENGTH_PX / 2);
  context.fill();
}

/** A curve that reaches billions of pixels outside of the canvas would cost time and show nothing. */
const FAR_PX = 4000;

function pointOf(scene: Scene, spot: Spot, at_us: number): Point | null {
  const row = scene.rows.rows.find(({ key }) => key === spot.lane);
  if (!row) return null;
  const x = toPixel(scene.view, at_us, scene.width);
  const top = topOfDepth(row, spot.depth, scene.scroll);
  return {
    x: Math.min(Math.max(x, -FAR_PX), scene.width + FAR_PX),
    y: top + row.step / 2,
  };
}
