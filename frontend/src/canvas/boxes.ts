// Paints the boxes of one lane and depth, with their names.

import { cause } from "../base/causes";
import { time } from "../base/format";
import { functionFirst } from "../base/names";
import type { Scheme } from "../base/vocabulary";
import type { Row } from "./rows";
import { NAME_FROM_PX, type Context, type Scene } from "./scene";
import { firstEndingAfter, type Boxes, type Slice } from "./slice";
import { fitted } from "./text";
import { causeFill, FONT, kindFill, theme, type Fill } from "./theme";

/** Paint even the shortest event strongly enough to be seen. */
const FAINTEST = 0.25;

/** Where the boxes of one lane and depth go. */
interface Strip {
  readonly context: Context;
  readonly scheme: Scheme;
  readonly top: number;
  readonly height: number;
  readonly isGaps: boolean;
}

export function paintBoxes(context: Context, scene: Scene, row: Row, boxes: Boxes, top: number): void {
  const { view, width, scheme, slice } = scene;
  const isGaps = row.kind === "gaps";
  const strip = { context, scheme, top, height: row.step - 1, isGaps };
  const scale = width / (view.end_us - view.start_us);
  const run = new Run(strip);
  const labels: Label[] = [];
  for (let at = firstEndingAfter(boxes, view.start_us); at < boxes.start_us.length; at += 1) {
    const start_us = boxes.start_us[at] ?? 0;
    if (start_us > view.end_us) break;
    const left = Math.max((start_us - view.start_us) * scale, -1);
    const right = Math.min(((boxes.end_us[at] ?? 0) - view.start_us) * scale, width + 1);
    // Several gaps with work between them must not look like one.
    const merged = isGaps && (boxes.count[at] ?? 1) > 1;
    const fill = fillOf(slice, boxes, at, strip);
    if (isGaps ? !merged : right - left >= NAME_FROM_PX) {
      addLabel(labels, labelOf(slice, boxes, at, { fill, left, right }), isGaps);
    }
    run.paint(fill, left, right, merged);
  }
  run.flush();
  paintLabels(strip, labels, width);
}

/**
 * Paints neighbors that are too narrow to be seen separately as one rectangle, so that thousands of boxes cost few
 * rectangles. A rectangle that they fill only in part is fainter: it must not look like more time than it is.
 */
class Run {
  private fill: Fill | null = null;
  private left = 0;
  private right = 0;
  private filled = 0;
  private merged = false;

  constructor(private readonly strip: Strip) {}

  paint(fill: Fill, left: number, right: number, merged: boolean): void {
    if (merged || right - left < 2) {
      this.add(fill, left, right, merged);
      return;
    }
    this.flush();
    // One pixel of background on the right separates neighbors.
    fillBox(this.strip, fill, left, Math.max(right - left - (this.strip.isGaps ? 0 : 0.75), 1));
  }

  private add(fill: Fill, left: number, right: number, merged: boolean): void {
    if (this.fill === fill && this.merged === merged && left <= this.right + 0.5) {
      this.right = Math.max(this.right, right, left + 1);
      this.filled += right - left;
      return;
    }
    this.flush();
    this.fill = fill;
    this.merged = merged;
    this.left = left;
    this.right = Math.max(right, left + 1);
    this.filled = right - left;
  }

  flush(): void {
    if (!this.fill) return;
    const { context } = this.strip;
    const width = this.right - this.left;
    context.globalAlpha = Math.min(1, Math.max(FAINTEST, this.filled / width));
    fillBox(this.merged ? lowerPart(this.strip) : this.strip, this.fill, this.left, width);
    context.globalAlpha = 1;
    this.fill = null;
  }
}

/** Merged gaps have this share of the height of a gap, so that they differ in more than opacity. */
const MERGED_SHARE = 0.45;

function lowerPart(strip: Strip): Strip {
  const height = Math.round(strip.height * MERGED_SHARE);
  return { ...strip, top: strip.top + strip.height - height, height };
}

interface Extent {
  readonly fill: Fill;
  readonly left: number;
  readonly right: number;
}

interface Label extends Extent {
  readonly name: string;
  readonly us: number;
  readonly events: number;
}

function nameOf(slice: Slice, boxes: Boxes, at: number): string {
  return slice.names[boxes.name[at] ?? 0] ?? "";
}

function fillOf(slice: Slice, boxes: Boxes, at: number, { isGaps, scheme }: Strip): Fill {
  return isGaps ? causeFill(nameOf(slice, boxes, at), scheme) : kindFill(boxes.kind[at] ?? 0, scheme);
}

function labelOf(slice: Slice, boxes: Boxes, at: number, { fill, left, right }: Extent): Label {
  const us = (boxes.end_us[at] ?? 0) - (boxes.start_us[at] ?? 0);
  const events = boxes.count[at] ?? 1;
  return { fill, left: Math.max(left, 0), right, name: nameOf(slice, boxes, at), us, events };
}

function addLabel(labels: Label[], label: Label, isGaps: boolean): void {
  const last = labels.at(-1);
  if (isGaps && last?.name === label.name && label.left - last.right < 1) {
    // A cause that continues in the next gap segment gets one label.
    labels[labels.length - 1] = { ...last, right: label.right, us: last.us + label.us };
  } else labels.push(label);
}

function paintLabels({ context, isGaps, top, height }: Strip, labels: readonly Label[], width: number): void {
  context.font = `${isGaps ? 11 : 10.5}px ${FONT}`;
  context.textBaseline = "middle";
  for (const label of labels) {
    if (label.right - label.left < NAME_FROM_PX) continue;
    const text = isGaps ? `${cause(label.name).word} ${time(label.us)}` : eventLabel(label);
    const shown = fitted(context, text, Math.min(label.right, width) - label.left - 8);
    if (!shown) continue;
    context.fillStyle = label.fill.text;
    context.fillText(shown, label.left + 4, top + height / 2 + 0.5);
  }
}

function eventLabel({ name, events }: Label): string {
  const shown = functionFirst(name);
  return events > 1 ? `${events} × ${shown}` : shown;
}

const patterns = new Map<Scheme, CanvasPattern | null>();

function fillBox({ context, scheme, top, height }: Strip, fill: Fill, left: number, width: number): void {
  fillArea(context, scheme, fill, { left, top, width, height });
}

interface Area {
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
}

/** Fill an area, hatched if the color is. */
export function fillArea(context: Context, scheme: Scheme, fill: Fill, area: Area): void {
  const { left, top, width, height } = area;
  context.fillStyle = fill.color;
  context.fillRect(left, top, width, height);
  if (!fill.hatched || width < 3) return;
  const stripes = patterns.get(scheme) ?? hatch(context, theme(scheme).stripe);
  patterns.set(scheme, stripes);
  if (!stripes) return;
  context.fillStyle = stripes;
  context.fillRect(left, top, width, height);
}

function hatch(context: Context, color: string): CanvasPattern | null {
  const size = 6;
  const tile = document.createElement("canvas");
  tile.width = size;
  tile.height = size;
  const pen = tile.getContext("2d");
  if (!pen) return null;
  pen.strokeStyle = color;
  pen.lineWidth = 1.5;
  pen.beginPath();
  for (const shift of [-size, 0, size]) {
    pen.moveTo(shift, size);
    pen.lineTo(shift + size, 0);
  }
  pen.stroke();
  return context.createPattern(tile, "repeat");
}
