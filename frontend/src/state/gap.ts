// What the host did in a gap, as a list that a reader can take in.

import type { HostSegment } from "../wire/report";

/** One thing that the host did, however often it came back to it. */
export interface Activity {
  readonly cause: string;
  readonly name: string;
  readonly place: string;
  readonly us: number;
  readonly times: number;
}

/** What took less than this share of the gap is shown only when asked for: it is not what the GPU waited for. */
const MAIN_SHARE = 0.02;
const MAIN_MOST = 12;

/** In the order in which each was first done. */
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

/** The activities that make up a gap of this length, in the same order. */
export function longest(activities: readonly Activity[], gap_us: number): Activity[] {
  const ranked = [...activities].sort((a, b) => b.us - a.us);
  const long = ranked.filter(({ us }, at) => at === 0 || us >= MAIN_SHARE * gap_us);
  const kept = new Set(long.slice(0, MAIN_MOST));
  return activities.filter((activity) => kept.has(activity));
}
