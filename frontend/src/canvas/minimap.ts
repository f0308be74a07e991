// Paints the whole recording as a strip: how busy each GPU is in each pixel, and why it is idle.

import type { Scheme } from "../base/vocabulary";
import type { Context } from "./scene";
import type { Slice, SliceLane } from "./slice";
import { causeFill, KERNEL_KIND, kindFill, theme } from "./theme";

export const MINIMAP_PX = 46;

/** Room for the marks of findings, and for those of matches. */
const MARKS_PX = 8;
const MATCHES_PX = 5;

/** More GPUs would be thinner than a pixel. */
const MOST_STRIPS = 6;

export function paintMinimap(
  context: Context,
  slice: Slice,
  width: number,
  scheme: Scheme,
  perPart: readonly number[],
): void {
  const colors = theme(scheme);
  context.fillStyle = colors.surface;
  context.fillRect(0, 0, width, MINIMAP_PX);
  const lanes = [...slice.lanes.values()];
  const idle = lanes.filter(({ kind }) => kind === "gaps").slice(0, MOST_STRIPS);
  const room = MINIMAP_PX - MARKS_PX - MATCHES_PX;
  if (idle.length === 0) {
    const thread = lanes.find(({ kind }) => kind === "thread");
    if (thread) paintBusy(context, slice, thread, width, MARKS_PX, room, scheme);
  }
  const height = room / Math.max(idle.length, 1);
  idle.forEach((lane, at) =>
    paintIdle(context, slice, lane, width, MARKS_PX + at * height, height - 1, scheme),
  );
  context.fillStyle = colors.accent;
  const most = Math.max(...perPart, 1);
  perPart.forEach((matches, at) => {
    if (matches === 0) return;
    context.globalAlpha = 0.45 + (0.55 * matches) / most;
    const left = (at / perPart.length) * width;
    context.fillRect(left, MINIMAP_PX - MATCHES_PX + 1, Math.max(1, width / perPart.length), MATCHES_PX - 1);
  });
  context.globalAlpha = 1;
}

/** Share of each pixel that is covered, by name. */
function shares(slice: Slice, lane: SliceLane, width: number): Map<number, Float64Array> {
  const found = new Map<number, Float64Array>();
  const scale = width / (slice.end_us - slice.start_us);
  for (const boxes of lane.depths.slice(0, 1)) {
    boxes.start_us.forEach((start_us, at) => {
      const name = boxes.name[at] ?? 0;
      let pixels = found.get(name);
      if (!pixels) found.set(name, (pixels = new Float64Array(width)));
      const left = (start_us - slice.start_us) * scale;
      const right = ((boxes.end_us[at] ?? 0) - slice.start_us) * scale;
      for (let x = Math.max(0, Math.floor(left)); x < Math.min(width, right); x += 1) {
        pixels[x] = (pixels[x] ?? 0) + Math.min(right, x + 1) - Math.max(left, x);
      }
    });
  }
  return found;
}

/** Idle time by cause from the top, busy time from the bottom. */
function paintIdle(
  context: Context,
  slice: Slice,
  lane: SliceLane,
  width: number,
  top: number,
  height: number,
  scheme: Scheme,
): void {
  context.fillStyle = kindFill(KERNEL_KIND, scheme).color;
  context.fillRect(0, top, width, height);
  const filled = new Float64Array(width);
  for (const [name, pixels] of shares(slice, lane, width)) {
    context.fillStyle = causeFill(slice.names[name] ?? "", scheme).color;
    pixels.forEach((share, x) => {
      if (share <= 0) return;
      const from = Math.min(1, filled[x] ?? 0);
      const to = Math.min(1, from + share);
      filled[x] = to;
      context.fillRect(x, top + from * height, 1, (to - from) * height);
    });
  }
}

function paintBusy(
  context: Context,
  slice: Slice,
  lane: SliceLane,
  width: number,
  top: number,
  height: number,
  scheme: Scheme,
): void {
  const busy = new Float64Array(width);
  for (const pixels of shares(slice, lane, width).values()) {
    pixels.forEach((share, x) => (busy[x] = Math.min(1, (busy[x] ?? 0) + share)));
  }
  context.fillStyle = kindFill(1, scheme).color;
  busy.forEach((share, x) => {
    if (share > 0) context.fillRect(x, top + (1 - share) * height, 1, share * height);
  });
}
