// Paints one frame of the timeline. Keeps no state between frames.

import { moment, time } from "../base/format";
import { ticks, type Ticks } from "../base/ticks";
import { toPixel } from "../base/viewport";
import { paintBoxes } from "./boxes";
import { outline, paintArrows } from "./arrows";
import { paintCurve } from "./queue";
import { topOf, type Row } from "./rows";
import { HEAD_PX, NAME_FROM_PX, RULER_PX, STEPS_PX, type Context, type Scene } from "./scene";
import { fitted } from "./text";
import { FONT, theme, type Theme } from "./theme";

const TICKS_APART_PX = 110;

export function draw(context: Context, scene: Scene): void {
  const colors = theme(scene.scheme);
  context.fillStyle = colors.surface;
  context.fillRect(0, 0, scene.width, scene.height);
  const grid = ticks(scene.view, scene.width, TICKS_APART_PX);
  context.fillStyle = colors.faint;
  for (const at_us of grid.at_us) {
    context.fillRect(Math.round(toPixel(scene.view, at_us, scene.width)), HEAD_PX, 1, scene.height);
  }
  bands(context, scene, colors);
  context.save();
  context.beginPath();
  context.rect(0, HEAD_PX, scene.width, scene.height - HEAD_PX);
  context.clip();
  paintLanes(context, scene, colors);
  edges(context, scene, colors);
  dim(context, scene, colors);
  if (scene.hover) {
    const { row, depth, start_us, end_us } = scene.hover;
    outline(context, scene, { lane: row.key, depth, start_us, end_us }, colors.text, 1.25);
  }
  for (const spot of scene.found) outline(context, scene, spot, colors.accent, 1);
  if (scene.event) outline(context, scene, scene.event, colors.accent, 2.5);
  paintArrows(context, scene, colors);
  context.restore();
  context.fillStyle = colors.ruler;
  context.fillRect(0, 0, scene.width, HEAD_PX);
  context.font = `10.5px ${FONT}`;
  context.textBaseline = "middle";
  ruler(context, scene, colors, grid);
  steps(context, scene, colors);
  selectionMark(context, scene, colors);
  context.fillStyle = colors.line;
  context.fillRect(0, HEAD_PX - 1, scene.width, 1);
}

function bands(context: Context, scene: Scene, colors: Theme): void {
  const { view, width, height } = scene;
  context.fillStyle = colors.band;
  let painted = -Infinity;
  for (const range of [...scene.marks].sort((a, b) => a.start_us - b.start_us)) {
    const left = Math.max(toPixel(view, range.start_us, width), painted);
    const right = toPixel(view, range.end_us, width);
    if (right <= 0 || left >= width || right <= painted) continue;
    painted = Math.max(right, left + 1);
    context.fillRect(left, 0, painted - left, height);
  }
  for (const range of [scene.gap, scene.selection, scene.mark]) {
    if (!range) continue;
    const left = toPixel(view, range.start_us, width);
    context.fillRect(left, 0, Math.max(1, toPixel(view, range.end_us, width) - left), height);
  }
}

/** Paint the lanes that scroll, and over them those that are pinned. */
function paintLanes(context: Context, scene: Scene, colors: Theme): void {
  const { rows, pinned } = scene.rows;
  for (const row of rows) if (!row.pinned) lane(context, scene, row);
  if (pinned === 0) return;
  context.fillStyle = colors.surface;
  context.fillRect(0, HEAD_PX, scene.width, pinned);
  for (const row of rows) if (row.pinned) lane(context, scene, row);
  context.fillStyle = colors.line;
  context.fillRect(0, HEAD_PX + pinned - 2, scene.width, 1);
}

/** A range that is lit has at least this width: it would vanish in the dark. */
const LIT_PX = 3;

function dim(context: Context, { lit, view, width, height }: Scene, colors: Theme): void {
  if (!lit) return;
  context.globalAlpha = 0.72;
  context.fillStyle = colors.surface;
  let dark = 0;
  for (const { start_us, end_us } of [...lit].sort((a, b) => a.start_us - b.start_us)) {
    const left = Math.min(toPixel(view, start_us, width), width);
    if (left > dark) context.fillRect(dark, HEAD_PX, left - dark, height);
    dark = Math.max(dark, toPixel(view, end_us, width), left + LIT_PX);
  }
  if (dark < width) context.fillRect(dark, HEAD_PX, width - dark, height);
  context.globalAlpha = 1;
}

function lane(context: Context, scene: Scene, row: Row): void {
  const top = HEAD_PX + topOf(row, scene.scroll);
  if (top > scene.height || top + row.height < HEAD_PX) return;
  const found = scene.slice.lanes.get(row.key);
  if (found?.queue) {
    paintCurve(context, scene, row, found.queue, top);
    return;
  }
  const depths = found?.depths ?? [];
  const shown = Math.floor(row.height / row.step);
  for (let line = 0; line < shown; line += 1) {
    const boxes = depths[row.first + line];
    if (boxes) paintBoxes(context, scene, row, boxes, top + line * row.step);
  }
}

function edges(context: Context, { gap, mark, view, width, height }: Scene, colors: Theme): void {
  context.fillStyle = colors.accent;
  for (const range of [gap, mark]) {
    if (!range) continue;
    for (const us of [range.start_us, range.end_us]) {
      context.fillRect(Math.round(toPixel(view, us, width)) - 0.5, HEAD_PX, 1, height);
    }
  }
}

function ruler(context: Context, { view, width }: Scene, colors: Theme, { at_us, step_us }: Ticks): void {
  for (const at of at_us) {
    const left = Math.round(toPixel(view, at, width));
    context.fillStyle = colors.line;
    context.fillRect(left, RULER_PX - 5, 1, 5);
    const label = moment(at, step_us);
    if (left + 4 + context.measureText(label).width > width) continue;
    context.fillStyle = colors.muted;
    context.fillText(label, left + 4, RULER_PX / 2 + 1);
  }
}

function steps(context: Context, { slice, view, width }: Scene, colors: Theme): void {
  slice.steps.forEach((step, index) => {
    const left = Math.max(toPixel(view, step.start_us, width), -1);
    const right = Math.min(toPixel(view, step.end_us, width), width + 1);
    if (right <= 0 || left >= width) return;
    context.fillStyle = index % 2 === 0 ? colors.line : colors.faint;
    context.fillRect(left, RULER_PX, Math.max(1, right - left - 1), STEPS_PX - 2);
    if (right - left < NAME_FROM_PX) return;
    const name = fitted(context, `${step.name}  ${time(step.end_us - step.start_us)}`, right - left - 10);
    context.fillStyle = colors.text;
    context.fillText(name, Math.max(left, 0) + 5, RULER_PX + STEPS_PX / 2 - 0.5);
  });
}

/** Paint the length of the selection on the ruler, if the selection is in view. */
function selectionMark(context: Context, { selection, view, width }: Scene, colors: Theme): void {
  if (!selection) return;
  const left = toPixel(view, selection.start_us, width);
  const right = toPixel(view, selection.end_us, width);
  if (right < 0 || left > width) return;
  context.fillStyle = colors.accent;
  context.fillRect(left, 0, Math.max(1, right - left), 2);
  const text = time(selection.end_us - selection.start_us);
  const length = context.measureText(text).width + 10;
  const middle = Math.min(Math.max((left + right) / 2, length / 2), width - length / 2);
  context.fillRect(middle - length / 2, 0, length, RULER_PX - 3);
  context.fillStyle = colors.surface;
  context.fillText(text, middle - length / 2 + 5, RULER_PX / 2 - 1);
}
