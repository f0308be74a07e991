// One frame of the timeline, as data: everything that drawing it needs.

import type { Scheme } from "../base/vocabulary";
import type { Viewport } from "../base/viewport";
import type { Hit } from "./hit";
import type { Rows } from "./rows";
import type { Slice } from "./slice";

export const RULER_PX = 20;
export const STEPS_PX = 18;
export const HEAD_PX = RULER_PX + STEPS_PX;

/** Boxes narrower than this get no name. */
export const NAME_FROM_PX = 34;

export type Context = CanvasRenderingContext2D;

export interface Scene {
  readonly width: number;
  readonly height: number;
  readonly view: Viewport;
  readonly scroll: number;
  readonly scheme: Scheme;
  readonly slice: Slice;
  readonly rows: Rows;
  /** All places of the table row that is shown. */
  readonly marks: readonly Viewport[];
  /** The one of `marks` that the user went to. */
  readonly mark: Viewport | null;
  readonly gap: Viewport | null;
  readonly selection: Viewport | null;
  readonly hover: Hit | null;
  /** The event whose details are shown. */
  readonly event: Spot | null;
  readonly arrows: readonly Arrow[];
  /** Everything outside of these ranges is dimmed; null dims nothing. */
  readonly lit: readonly Viewport[] | null;
  /** Matches of the search, to mark on the lanes. */
  readonly found: readonly Spot[];
}

/** An event on the timeline. */
export interface Spot {
  /** The lane's key. */
  readonly lane: string;
  readonly depth: number;
  readonly start_us: number;
  readonly end_us: number;
}

/** From an event to one that it leads to. */
export interface Arrow {
  readonly kind: string;
  readonly from: Spot;
  readonly to: Spot;
}
