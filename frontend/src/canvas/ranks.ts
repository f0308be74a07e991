// Paints a job's timeline: a lane per rank, with its stretches as stacks of what the rank does and, below them, its
// collectives.

import { moment } from "../base/format";
import { ticks } from "../base/ticks";
import { toPixel, type Viewport } from "../base/viewport";
import type { Scheme } from "../base/vocabulary";
import type { Lane, LaneCollective, Spot, Stretch } from "./rankLanes";
import { fillArea } from "./boxes";
import type { Context } from "./scene";
import { fitted } from "./text";
import { causeFill, FONT, theme, type Theme } from "./theme";

interface RankScene {
  readonly lanes: readonly Lane[];
  readonly steps: readonly StepMark[];
  readonly view: Viewport;
  readonly width: number;
  readonly laneHeight: number;
  readonly scheme: Scheme;
  readonly focus: Spot | null;
  /** A collective is marked if the other ranks wait for this rank at least this long. */
  readonly marked_us: number;
}

export interface StepMark {
  readonly name: string;
  readonly start_us: number;
}

/** Ruler and steps. */
const RANKS_HEAD_PX = 36;

const TICKS_APART_PX = 110;

/** Part of a lane's height for its stretches. The rest is for collectives. */
const STACKS = 0.66;

/** Waiting is paler than transferring. */
export const WAITING_ALPHA = 0.35;

export function heightOf(lanes: number, laneHeight: number): number {
  return RANKS_HEAD_PX + lanes * laneHeight;
}

/** Return the lane at a height, or -1. */
export function laneAt(scene: Pick<RankScene, "lanes" | "laneHeight">, y: number): number {
  const lane = Math.floor((y - RANKS_HEAD_PX) / scene.laneHeight);
  return lane >= 0 && lane < scene.lanes.length ? lane : -1;
}

export function paintRanks(context: Context, scene: RankScene): void {
  const { lanes, width, laneHeight } = scene;
  const colors = theme(scene.scheme);
  const height = heightOf(lanes.length, laneHeight);
  context.fillStyle = colors.surface;
  context.fillRect(0, 0, width, height);
  lanes.forEach((lane, at) => {
    const top = RANKS_HEAD_PX + at * laneHeight;
    const gap = laneHeight >= 12 ? 2 : 1;
    const stacks = Math.round((laneHeight - gap) * STACKS);
    for (const stretch of lane.stretches) paintStack(context, scene, stretch, top, stacks);
    const strip = { top: top + stacks + 1, height: laneHeight - gap - stacks - 1 };
    for (const one of lane.collectives) paintCollective(context, scene, one, strip);
    context.fillStyle = colors.faint;
    context.fillRect(0, top + laneHeight - 1, width, 1);
  });
  paintHead(context, scene, colors, height);
  paintMarks(context, scene, colors);
  paintFocus(context, scene, colors);
}

/** Left and right edge in pixels, or null outside of the view. */
function edges({ view, width }: RankScene, range: Viewport): readonly [number, number] | null {
  const left = toPixel(view, range.start_us, width);
  const right = toPixel(view, range.end_us, width);
  if (right < 0 || left > width) return null;
  return [Math.max(left, -2), Math.max(Math.min(right, width + 2), Math.max(left, -2) + 1)];
}

function paintStack(context: Context, scene: RankScene, stretch: Stretch, top: number, height: number): void {
  const place = edges(scene, stretch);
  if (!place) return;
  const [left, right] = place;
  const sum = stretch.parts.reduce((all, { us }) => all + us, 0);
  const whole = Math.max(sum, stretch.end_us - stretch.start_us);
  const width = right - left > 3 ? right - left - 0.5 : right - left;
  let bottom = top + height;
  for (const { name, us } of stretch.parts) {
    const own = (us / whole) * height;
    bottom -= own;
    fillArea(context, scene.scheme, causeFill(name, scene.scheme), { left, top: bottom, width, height: own });
  }
}

interface Strip {
  readonly top: number;
  readonly height: number;
}

function paintCollective(context: Context, scene: RankScene, one: LaneCollective, strip: Strip): void {
  const place = edges(scene, one);
  if (!place) return;
  const [left, right] = place;
  const { waiting_us, transfer_us } = one;
  const whole = Math.max(waiting_us + transfer_us, one.end_us - one.start_us);
  const room = right - left;
  context.fillStyle = causeFill("communicating", scene.scheme).color;
  context.globalAlpha = WAITING_ALPHA;
  context.fillRect(left, strip.top, (room * waiting_us) / whole, strip.height);
  context.globalAlpha = 1;
  context.fillRect(left + (room * waiting_us) / whole, strip.top, (room * transfer_us) / whole, strip.height);
}

function paintMarks(context: Context, scene: RankScene, colors: Theme): void {
  const { lanes, laneHeight, view, width, marked_us } = scene;
  const size = Math.min(5, laneHeight / 3);
  lanes.forEach(({ collectives }, at) => {
    const bottom = RANKS_HEAD_PX + (at + 1) * laneHeight - 1;
    for (const { start_us, waited_for_us } of collectives) {
      const x = toPixel(view, start_us, width);
      if (waited_for_us < marked_us || x < -size || x > width + size) continue;
      context.beginPath();
      context.moveTo(x, bottom - 2 * size);
      context.lineTo(x + size, bottom);
      context.lineTo(x - size, bottom);
      context.closePath();
      context.fillStyle = colors.text;
      context.fill();
      context.strokeStyle = colors.surface;
      context.lineWidth = 1;
      context.stroke();
    }
  });
}

function paintHead(context: Context, scene: RankScene, colors: Theme, height: number): void {
  const { view, width, steps } = scene;
  context.fillStyle = colors.ruler;
  context.fillRect(0, 0, width, RANKS_HEAD_PX);
  context.font = `10.5px ${FONT}`;
  context.textBaseline = "middle";
  const grid = ticks(view, width, TICKS_APART_PX);
  context.fillStyle = colors.muted;
  for (const at_us of grid.at_us) {
    const x = toPixel(view, at_us, width);
    context.fillRect(x, 12, 1, 5);
    const text = moment(at_us, grid.step_us);
    if (x + context.measureText(text).width + 4 < width) context.fillText(text, x + 4, 9);
  }
  steps.forEach(({ name, start_us }, at) => {
    const x = toPixel(view, start_us, width);
    const next = steps[at + 1];
    const end = Math.min(next ? toPixel(view, next.start_us, width) : width, width);
    if (end < 0 || x > width) return;
    context.fillStyle = colors.muted;
    if (x >= 0) context.fillRect(x, 18, 1, height - 18);
    const from = Math.max(x, 0) + 4;
    const shown = fitted(context, name, end - from - 2);
    context.fillStyle = colors.text;
    if (shown) context.fillText(shown, from, 27);
  });
  context.fillStyle = colors.line;
  context.fillRect(0, RANKS_HEAD_PX - 1, width, 1);
}

function paintFocus(context: Context, scene: RankScene, colors: Theme): void {
  const { focus, lanes, laneHeight } = scene;
  const stretch = focus && lanes[focus.lane]?.stretches[focus.stretch];
  const place = stretch && edges(scene, stretch);
  if (!place) return;
  const [left, right] = place;
  context.strokeStyle = colors.text;
  context.lineWidth = 2;
  const top = RANKS_HEAD_PX + focus.lane * laneHeight;
  context.strokeRect(left, top, Math.max(right - left, 2), laneHeight - 1);
}
