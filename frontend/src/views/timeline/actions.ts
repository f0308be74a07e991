// The actions of the keys and buttons of the timeline.

import { aired, pan, span, zoom, type Viewport } from "../../base/viewport";
import type { Gap } from "../../canvas/slice";
import { usePage } from "../../state/store";
import type { TimelineEvent } from "../../wire/report";
import { rangeOf } from "./goTo";

/** Where to go from the selected event. */
export type Direction = "previous" | "next" | "outer" | "inner";

const ZOOM_STEP = 0.6;
const PAN_STEP = 0.2;

export function zoomBy(view: Viewport, bounds: Viewport, inwards: boolean): void {
  const middle_us = (view.start_us + view.end_us) / 2;
  usePage.getState().setView(zoom(view, inwards ? ZOOM_STEP : 1 / ZOOM_STEP, middle_us, bounds));
}

export function panBy(view: Viewport, bounds: Viewport, direction: -1 | 1): void {
  usePage.getState().setView(pan(view, direction * PAN_STEP * span(view), bounds));
}

export function fit(): void {
  usePage.getState().setView(null);
}

/** Go to the start of the trace without zooming. */
export function home(view: Viewport, bounds: Viewport): void {
  usePage.getState().setView(pan(view, bounds.start_us - view.start_us, bounds));
}

export function zoomToSelection(): void {
  const { selection, setView, setSelection } = usePage.getState();
  if (!selection) return;
  setView(selection);
  setSelection(null);
}

/** Open the call tree and the tables of operators and kernels for the selected range. */
export function callsOfSelection(): void {
  const { openTab, setWithin } = usePage.getState();
  setWithin(true);
  openTab("operators");
}

export function zoomToEvent(event: TimelineEvent): void {
  usePage.getState().setView(aired(rangeOf(event)));
}

/** Open an event, and show `view` unless it is null. */
export function goToEvent({ number }: TimelineEvent, view: Viewport | null): void {
  const { openEvent, setView } = usePage.getState();
  openEvent(number);
  if (view) setView(view);
}

export function goToGap(gap: Gap | null): void {
  if (!gap) return;
  const { openGap, setView } = usePage.getState();
  openGap({ device: gap.device, gap: gap.gap });
  setView(aired(gap));
}

/** Timestamps are whole nanoseconds. */
const INSIDE_US = 0.0005;

/** Open the event next to this one in its row, or the one that encloses it, or the first in it. */
export function stepEvent({ lane, depth, start_us, duration_us }: TimelineEvent, to: Direction): void {
  const { openEvent } = usePage.getState();
  if (to === "outer" && depth > 0) openEvent({ lane, depth: depth - 1, start_us });
  if (to === "inner") openEvent({ lane, depth: depth + 1, start_us });
  const end_us = start_us + duration_us;
  if (to === "next") openEvent({ lane, depth, start_us: Math.max(end_us, start_us + INSIDE_US) });
  if (to === "previous") openEvent({ lane, depth, start_us, previous: 1 });
}

/** Select a range, and show its statistics instead of an event or a gap. */
export function select(range: Viewport): void {
  usePage.setState({ selection: range, within: false, event: null, gap: null });
}

/** Return the range of the step at this time, if there is one. */
export function stepAt(steps: readonly Viewport[], at_us: number): Viewport | null {
  const step = steps.find(({ start_us, end_us }) => start_us <= at_us && at_us < end_us);
  return step ? { start_us: step.start_us, end_us: step.end_us } : null;
}
