// Paints one frame of the timeline. Reads a scene, keeps nothing.

import { cause, type Scheme } from "../base/causes";
import { moment, time } from "../base/format";
import { ticks } from "../base/ticks";
import { toPixel, type Viewport } from "../base/viewport";
import type { Hit } from "./hit";
import { paintQueue } from "./queue";
import type { Row, Rows } from "./rows";
import { firstEndingAfter, type Boxes, type Slice } from "./slice";
import { causeFill, FONT, kindFill, theme, type Fill, type Theme } from "./theme";

export const RULER_PX = 20;
export const STEPS_PX = 18;
export const HEAD_PX = RULER_PX + STEPS_PX;

export interface Scene {
  readonly width: number;
  readonly height: number;
  readonly view: Viewport;
  readonly scroll: number;
  readonly scheme: Scheme;
  readonly slice: Slice;
  readonly rows: Rows;
  /** Where a row of a table says that something is, and the one of them that was gone to. */
  readonly marks: readonly Viewport[];
  readonly mark: Viewport | null;
  readonly gap: Viewport | null;
  readonly selection: Viewport | null;
  readonly hover: Hit | null;
}

type Context = CanvasRenderingContext2D;

const TICKS_APART_PX = 110;

/** Even the shortest event leaves a trace that can be seen. */
const FAINTEST = 0.25;

/** Narrower boxes are painted without a name. */
const NAME_FROM_PX = 34;

export function draw(context: Context, scene: Scene): void {
  const colours = theme(scene.scheme);
  context.fillStyle = colours.surface;
  context.fillRect(0, 0, scene.width, scene.height);
  const grid = ticks(scene.view, scene.width, TICKS_APART_PX);
  const x = (us: number) => toPixel(scene.view, us, scene.width);

  context.fillStyle = colours.faint;
  for (const at of grid.at_us) context.fillRect(Math.round(x(at)), HEAD_PX, 1, scene.height);
  bands(context, scene, colours);
  context.save();
  context.beginPath();
  context.rect(0, HEAD_PX, scene.width, scene.height - HEAD_PX);
  context.clip();
  for (const row of scene.rows.rows) lane(context, scene, row);
  outlines(context, scene, colours);
  context.restore();
  head(context, scene, colours, grid.at_us, grid.step_us);
}

function bands(context: Context, scene: Scene, colours: Theme): void {
  context.fillStyle = colours.band;
  let painted = -Infinity;
  for (const range of [...scene.marks].sort((a, b) => a.start_us - b.start_us)) {
    const left = Math.max(toPixel(scene.view, range.start_us, scene.width), painted);
    const right = toPixel(scene.view, range.end_us, scene.width);
    if (right <= 0 || left >= scene.width || right <= painted) continue;
    painted = Math.max(right, left + 1);
    context.fillRect(left, 0, painted - left, scene.height);
  }
  for (const range of [scene.gap, scene.selection, scene.mark]) {
    if (!range) continue;
    const left = toPixel(scene.view, range.start_us, scene.width);
    context.fillRect(
      left,
      0,
      Math.max(1, toPixel(scene.view, range.end_us, scene.width) - left),
      scene.height,
    );
  }
}

function lane(context: Context, scene: Scene, row: Row): void {
  const top = HEAD_PX + row.top - scene.scroll;
  if (top > scene.height || top + row.height < HEAD_PX) return;
  const found = scene.slice.lanes.get(row.key);
  if (found?.queue) {
    paintQueue(context, scene, row, found.queue, top);
    return;
  }
  const depths = found?.depths ?? [];
  const shown = Math.floor(row.height / row.step);
  for (let line = 0; line < shown; line += 1) {
    const boxes = depths[row.first + line];
    if (boxes) paintBoxes(context, scene, row, boxes, top + line * row.step);
  }
}

interface Label {
  readonly name: string;
  readonly fill: Fill;
  readonly left: number;
  readonly right: number;
  readonly us: number;
  readonly events: number;
}

function paintBoxes(context: Context, scene: Scene, row: Row, boxes: Boxes, top: number): void {
  const isGaps = row.kind === "gaps";
  const height = row.step - 1;
  const { view, width, scheme, slice } = scene;
  const scale = width / (view.end_us - view.start_us);
  // Neighbours too narrow to be told apart are painted as one stretch: thousands of boxes cost few rectangles. It is
  // the fainter the less of it they fill, so that it does not look like more time than it is.
  let runFill: Fill | null = null;
  let runLeft = 0;
  let runRight = 0;
  let runFilled = 0;
  const flush = () => {
    if (!runFill) return;
    context.globalAlpha = Math.min(1, Math.max(FAINTEST, runFilled / (runRight - runLeft)));
    stretch(context, runFill, runLeft, top, runRight - runLeft, height, scheme);
    context.globalAlpha = 1;
    runFill = null;
  };
  const names: Label[] = [];
  for (let at = firstEndingAfter(boxes, view.start_us); at < boxes.start_us.length; at += 1) {
    const start = boxes.start_us[at] ?? 0;
    if (start > view.end_us) break;
    const left = Math.max((start - view.start_us) * scale, -1);
    const right = Math.min(((boxes.end_us[at] ?? 0) - view.start_us) * scale, width + 1);
    const fill = isGaps
      ? causeFill(slice.names[boxes.name[at] ?? 0] ?? "", scheme)
      : kindFill(boxes.kind[at] ?? 0, scheme);
    if (isGaps || right - left >= NAME_FROM_PX) {
      const name = slice.names[boxes.name[at] ?? 0] ?? "";
      const us = (boxes.end_us[at] ?? 0) - start;
      const last = names.at(-1);
      if (isGaps && last?.name === name && left - last.right < 1) {
        // A cause that goes on over a cut of the ledger is named once.
        names[names.length - 1] = { ...last, right, us: last.us + us };
      } else {
        names.push({ name, fill, left: Math.max(left, 0), right, us, events: boxes.count[at] ?? 1 });
      }
    }
    if (right - left >= 2) {
      flush();
      // One pixel of background to the right keeps neighbours apart.
      stretch(context, fill, left, top, Math.max(right - left - (isGaps ? 0 : 0.75), 1), height, scheme);
      continue;
    }
    if (runFill === fill && left <= runRight + 0.5) {
      runRight = Math.max(runRight, right, left + 1);
      runFilled += right - left;
      continue;
    }
    flush();
    runFill = fill;
    runLeft = left;
    runRight = Math.max(right, left + 1);
    runFilled = right - left;
  }
  flush();
  context.font = `${isGaps ? 11 : 10.5}px ${FONT}`;
  context.textBaseline = "middle";
  for (const { name, fill, left, right, us, events } of names) {
    if (right - left < NAME_FROM_PX) continue;
    const label = isGaps ? `${cause(name).label} ${time(us)}` : events > 1 ? `${events} × ${name}` : name;
    const shown = fitted(context, label, Math.min(right, width) - left - 8);
    if (!shown) continue;
    context.fillStyle = fill.text;
    context.fillText(shown, left + 4, top + height / 2 + 0.5);
  }
}

const patterns = new Map<string, CanvasPattern | null>();

function stretch(
  context: Context,
  fill: Fill,
  left: number,
  top: number,
  width: number,
  height: number,
  scheme: Scheme,
): void {
  context.fillStyle = fill.colour;
  context.fillRect(left, top, width, height);
  if (!fill.hatched || width < 3) return;
  const stripes = patterns.get(scheme) ?? hatch(context, theme(scheme).stripe);
  patterns.set(scheme, stripes);
  if (!stripes) return;
  context.fillStyle = stripes;
  context.fillRect(left, top, width, height);
}

function hatch(context: Context, colour: string): CanvasPattern | null {
  const size = 6;
  const tile = document.createElement("canvas");
  tile.width = size;
  tile.height = size;
  const pen = tile.getContext("2d");
  if (!pen) return null;
  pen.strokeStyle = colour;
  pen.lineWidth = 1.5;
  pen.beginPath();
  for (const shift of [-size, 0, size]) {
    pen.moveTo(shift, size);
    pen.lineTo(shift + size, 0);
  }
  pen.stroke();
  return context.createPattern(tile, "repeat");
}

/** Measured widths, by font and text. Bounded: a trace holds any number of names. */
const widths = new Map<string, number>();
const WIDTHS_KEPT = 5000;

/** Names are up to thousands of characters long; no more than this is ever drawn of one. */
const DRAWN_CHARACTERS = 200;

function fitted(context: Context, label: string, room: number): string {
  const text = label.slice(0, DRAWN_CHARACTERS);
  const key = `${context.font}/${text}`;
  let width = widths.get(key);
  if (width === undefined) {
    if (widths.size >= WIDTHS_KEPT) widths.clear();
    width = context.measureText(text).width;
    widths.set(key, width);
  }
  if (width <= room) return text;
  const fits = Math.floor((text.length * (room - 8)) / width);
  return fits >= 3 ? `${text.slice(0, fits)}…` : "";
}

function outlines(context: Context, scene: Scene, colours: Theme): void {
  const { hover, gap, mark, view, width, scroll } = scene;
  for (const edged of [gap, mark]) {
    if (!edged) continue;
    context.fillStyle = colours.accent;
    for (const us of [edged.start_us, edged.end_us]) {
      context.fillRect(Math.round(toPixel(view, us, width)) - 0.5, HEAD_PX, 1, scene.height);
    }
  }
  if (hover) {
    const left = toPixel(view, hover.start_us, width);
    const right = toPixel(view, hover.end_us, width);
    context.strokeStyle = colours.text;
    context.lineWidth = 1.25;
    const top = HEAD_PX + hover.row.top + (hover.depth - hover.row.first) * hover.row.step - scroll;
    context.strokeRect(
      Math.max(left, -2) + 0.5,
      top + 0.5,
      Math.max(2, Math.min(right, width + 2) - Math.max(left, -2) - 1),
      hover.row.step - 2,
    );
  }
}

function head(
  context: Context,
  scene: Scene,
  colours: Theme,
  at_us: readonly number[],
  step_us: number,
): void {
  const { width, view } = scene;
  context.fillStyle = colours.ruler;
  context.fillRect(0, 0, width, HEAD_PX);
  context.font = `10.5px ${FONT}`;
  context.textBaseline = "middle";
  for (const at of at_us) {
    const left = Math.round(toPixel(view, at, width));
    context.fillStyle = colours.line;
    context.fillRect(left, RULER_PX - 5, 1, 5);
    const label = moment(at, step_us);
    if (left + 4 + context.measureText(label).width > width) continue;
    context.fillStyle = colours.muted;
    context.fillText(label, left + 4, RULER_PX / 2 + 1);
  }
  scene.slice.steps.forEach((step, index) => {
    const left = Math.max(toPixel(view, step.start_us, width), -1);
    const right = Math.min(toPixel(view, step.end_us, width), width + 1);
    if (right <= 0 || left >= width) return;
    context.fillStyle = index % 2 === 0 ? colours.line : colours.faint;
    context.fillRect(left, RULER_PX, Math.max(1, right - left - 1), STEPS_PX - 2);
    if (right - left < NAME_FROM_PX) return;
    const name = fitted(context, `${step.name}  ${time(step.end_us - step.start_us)}`, right - left - 10);
    context.fillStyle = colours.text;
    context.fillText(name, Math.max(left, 0) + 5, RULER_PX + STEPS_PX / 2 - 0.5);
  });
  if (scene.selection) selectionMark(context, scene, colours);
  context.fillStyle = colours.line;
  context.fillRect(0, HEAD_PX - 1, width, 1);
}

function selectionMark(context: Context, scene: Scene, colours: Theme): void {
  const { selection, view, width } = scene;
  if (!selection) return;
  const left = toPixel(view, selection.start_us, width);
  const right = toPixel(view, selection.end_us, width);
  if (right < 0 || left > width) return;
  context.fillStyle = colours.accent;
  context.fillRect(left, 0, Math.max(1, right - left), 2);
  const text = time(selection.end_us - selection.start_us);
  const length = context.measureText(text).width + 10;
  const middle = Math.min(Math.max((left + right) / 2, length / 2), width - length / 2);
  context.fillRect(middle - length / 2, 0, length, RULER_PX - 3);
  context.fillStyle = colours.surface;
  context.fillText(text, middle - length / 2 + 5, RULER_PX / 2 - 1);
}
