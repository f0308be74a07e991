// What the timeline shows after going to an event.

import { aired, covers, span, type Viewport } from "../../base/viewport";
import type { TimelineEvent } from "../../wire/report";

/** An event takes at least this share of the view after going to it, and has this much around it. */
const SEEN_SHARE = 0.004;
const AROUND = 10;
const LEAST_US = 5;

type Timed = Pick<TimelineEvent, "start_us" | "duration_us">;

export function rangeOf({ start_us, duration_us }: Timed): Viewport {
  return { start_us, end_us: start_us + duration_us };
}

/** Return what to show of an event. Null keeps the view: the event can be seen there. */
export function viewOfEvent(event: Timed, view: Viewport, bounds: Viewport): Viewport | null {
  const range = rangeOf(event);
  const seen = span(range) > SEEN_SHARE * span(view);
  if (seen && covers(view, range)) return null;
  const half = seen ? span(view) / 2 : Math.max(span(range) * AROUND, LEAST_US);
  if (span(range) >= 2 * half) return aired(range);
  const middle = (range.start_us + range.end_us) / 2;
  return 2 * half < span(bounds) ? { start_us: middle - half, end_us: middle + half } : null;
}

/**
 * Return what to show after following an arrow: both of its ends. If they are in view already: the other end alone, or
 * null to keep the view.
 */
export function viewOfArrow(from: Timed, to: Timed, view: Viewport | null): Viewport | null {
  const ends = [rangeOf(from), rangeOf(to)];
  const range = {
    start_us: Math.min(...ends.map(({ start_us }) => start_us)),
    end_us: Math.max(...ends.map(({ end_us }) => end_us)),
  };
  const both = aired(range);
  const inView = view && view.start_us <= range.start_us && view.end_us >= range.end_us;
  return inView ? viewOfEvent(to, both, both) : both;
}
