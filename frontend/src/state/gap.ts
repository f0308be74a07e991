// What the host did during a gap, as a short list.

import type { HostSegment } from "../wire/report";

/** One host activity, with all of its occurrences. */
export interface Activity {
  readonly cause: string;
  readonly name: string;
  readonly place: string;
  readonly us: number;
  readonly times: number;
}

/** Activities with less than this share of the gap are folded: the GPU did not wait for them. */
const MAIN_SHARE = 0.02;
const MAIN_MOST = 12;

/** Group the segments by activity, in order of first occurrence. */
export function activitiesOf(segments: readonly HostSegment[]): Activity[] {
  const found = new Map<string, Activity>();
  for (const { cause, name, place, duration_us } of segments) {
    const key = JSON.stringify([cause, name, place]);
    const known = found.get(key);
    found.set(key, {
      cause,
      name,
      place,
      us: (known?.us ?? 0) + duration_us,
      times: (known?.times ?? 0) + 1,
    });
  }
  return [...found.values()];
}

/** Return the longest activities of a gap, in the same order. At least one is returned. */
export function longest(activities: readonly Activity[], gap_us: number): Activity[] {
  const ranked = [...activities].sort((a, b) => b.us - a.us);
  const long = ranked.filter(({ us }, at) => at === 0 || us >= MAIN_SHARE * gap_us);
  const kept = new Set(long.slice(0, MAIN_MOST));
  return activities.filter((activity) => kept.has(activity));
}
