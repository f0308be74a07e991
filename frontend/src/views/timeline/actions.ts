// The actions of the keys and buttons of the timeline.

import { aired, pan, span, zoom, type Viewport } from "../../base/viewport";
import type { Gap } from "../../canvas/slice";
import { usePage } from "../../state/store";

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

/** Open the gap `by` places further down the list of gaps, longest first. */
export function stepGap(gaps: readonly Gap[], by: -1 | 1): void {
  if (gaps.length === 0) return;
  const { gap, openGap, setView } = usePage.getState();
  const now = gaps.findIndex((other) => other.gap === gap?.gap && other.device === gap.device);
  const next = gaps[now === -1 ? 0 : Math.min(Math.max(now + by, 0), gaps.length - 1)];
  if (!next) return;
  openGap({ device: next.device, gap: next.gap });
  setView(aired(next));
}

export function zoomToSelection(): void {
  const { selection, setView, setSelection } = usePage.getState();
  if (!selection) return;
  setView(selection);
  setSelection(null);
}

/** Return the range of the step at this time, if there is one. */
export function stepAt(steps: readonly Viewport[], at_us: number): Viewport | null {
  const step = steps.find(({ start_us, end_us }) => start_us <= at_us && at_us < end_us);
  return step ? { start_us: step.start_us, end_us: step.end_us } : null;
}

/** Run the action of a key. Returns false if the key has none. */
export function onKey(key: string, view: Viewport, bounds: Viewport, gaps: readonly Gap[]): boolean {
  const does = keys(view, bounds, gaps)[key.length === 1 ? key.toLowerCase() : key];
  does?.();
  return does !== undefined;
}

function keys(view: Viewport, bounds: Viewport, gaps: readonly Gap[]): Partial<Record<string, () => void>> {
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
    n: () => {
      stepGap(gaps, 1);
    },
    p: () => {
      stepGap(gaps, -1);
    },
    Enter: () => {
      zoomToSelection();
    },
    Escape: () => {
      usePage.setState({ selection: null, gap: null, shown: null });
    },
  };
}
