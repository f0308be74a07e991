// The actions of the keys and buttons of the timeline.

import { aired, pan, span, zoom, type Viewport } from "../../base/viewport";
import { usePage } from "../../state/store";
import type { TimelineEvent } from "../../wire/report";

/** Where to go from the selected event. */
export type Direction = "previous" | "next" | "outer" | "inner";

const ZOOM_STEP = 0.6;
const PAN_STEP = 0.2;

function middle(view: Viewport): number {
  return (view.start_us + view.end_us) / 2;
}

export function zoomBy(view: Viewport, bounds: Viewport, inwards: boolean, at_us = middle(view)): void {
  usePage.getState().setView(zoom(view, inwards ? ZOOM_STEP : 1 / ZOOM_STEP, at_us, bounds));
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

export function zoomToEvent({ start_us, duration_us }: TimelineEvent): void {
  usePage.getState().setView(aired({ start_us, end_us: start_us + duration_us }));
}

/** Select the range of the event, or what is visible. */
export function mark(event: TimelineEvent | null, view: Viewport): void {
  const { start_us } = event ?? view;
  const end_us = event ? start_us + event.duration_us : view.end_us;
  usePage.setState({ selection: { start_us, end_us }, event: null, gap: null });
}

/** Return the range of the step at this time, if there is one. */
export function stepAt(steps: readonly Viewport[], at_us: number): Viewport | null {
  const step = steps.find(({ start_us, end_us }) => start_us <= at_us && at_us < end_us);
  return step ? { start_us: step.start_us, end_us: step.end_us } : null;
}

/** Run the action of a key. Returns false if the key has none. */
export function onKey(key: string, view: Viewport, bounds: Viewport): boolean {
  const does = keys(view, bounds)[key.length === 1 ? key.toLowerCase() : key];
  does?.();
  return does !== undefined;
}

function keys(view: Viewport, bounds: Viewport): Partial<Record<string, () => void>> {
  const left = () => {
    panBy(view, bounds, -1);
  };
  const right = () => {
    panBy(view, bounds, 1);
  };
  const closer = () => {
    zoomBy(view, bounds, true);
  };
  const wider = () => {
    zoomBy(view, bounds, false);
  };
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
    Home: () => {
      home(view, bounds);
    },
    Enter: () => {
      zoomToSelection();
    },
    Escape: () => {
      usePage.setState({ selection: null, gap: null, event: null, shown: null });
    },
  };
}
