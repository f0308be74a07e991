// What each key does.

import type { Viewport } from "../../base/viewport";
import { usePage } from "../../state/store";
import type { TimelineEvent } from "../../wire/report";
import {
  fit,
  goToGap,
  home,
  panBy,
  select,
  stepEvent,
  zoomBy,
  zoomToEvent,
  zoomToSelection,
  type Direction,
} from "./actions";
import type { GapSteps } from "./gapSteps";
import { rangeOf } from "./goTo";

export interface Stage {
  readonly view: Viewport;
  readonly bounds: Viewport;
  readonly selected: TimelineEvent | null;
  readonly gaps: Pick<GapSteps, "longer" | "shorter">;
  readonly search: () => void;
  readonly help: () => void;
}

const TO: Readonly<Record<string, Direction>> = {
  ArrowLeft: "previous",
  ArrowRight: "next",
  ArrowUp: "outer",
  ArrowDown: "inner",
};

/**
 * Run the action of a key on the timeline. Returns false if the key has none. Keys that other controls need too work
 * only in the lanes, and where nothing has the focus.
 */
export function onTimelineKey(key: string, inLanes: boolean, stage: Stage): boolean {
  const { view, bounds, selected, gaps, search, help } = stage;
  if (key.length > 1 && key !== "Escape" && !inLanes) return false;
  const to = TO[key];
  if (key === "/") search();
  else if (key === "?") help();
  else if (key === "m" || key === "M") select(selected ? rangeOf(selected) : view);
  else if (key === "n") goToGap(gaps.shorter);
  else if (key === "p") goToGap(gaps.longer);
  else if (to && selected) stepEvent(selected, to);
  else if (key === "Enter" && selected) zoomToEvent(selected);
  else return onKey(key, view, bounds);
  return true;
}

/** Run the action of a key that works on every chart over time. Returns false if the key has none. */
export function onKey(key: string, view: Viewport, bounds: Viewport): boolean {
  const does = keys(view, bounds)[key.length === 1 ? key.toLowerCase() : key];
  does?.();
  return does !== undefined;
}

function keys(view: Viewport, bounds: Viewport): Partial<Record<string, () => void>> {
  const left = () => panBy(view, bounds, -1);
  const right = () => panBy(view, bounds, 1);
  const closer = () => zoomBy(view, bounds, true);
  const wider = () => zoomBy(view, bounds, false);
  return {
    ArrowLeft: left,
    a: left,
    ArrowRight: right,
    d: right,
    ArrowUp: closer,
    w: closer,
    "+": closer,
    "=": closer,
    ArrowDown: wider,
    s: wider,
    "-": wider,
    "0": fit,
    Home: () => home(view, bounds),
    Enter: () => zoomToSelection(),
    Escape: () => usePage.setState({ selection: null, gap: null, event: null, shown: null }),
  };
}
