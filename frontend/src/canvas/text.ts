// Text on the canvas, cut to fit.

import type { Context } from "./scene";

/** Measured widths, by font and text. Bounded, because a trace can contain any number of names. */
const widths = new Map<string, number>();
const WIDTHS_KEPT = 5000;

/** Names can be thousands of characters long. Never draw more than this. */
const DRAWN_CHARACTERS = 200;

/** Return as much of `label` as fits into `room` pixels, or "" if that would be unreadable. */
export function fitted(context: Context, label: string, room: number): string {
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
