// The lanes of a job's timeline: what each rank does between its collectives, and the collectives.

import { rank as orderOf } from "../base/causes";
import type { Viewport } from "../base/viewport";
import type { JobRank, JobReport, LaneCollectives, RankLane, RankTimeline } from "../wire/report";

interface LanePart {
  readonly name: string;
  readonly us: number;
}

/** What a rank does for a while. The parts are in the order of the legend. */
export interface Stretch extends Viewport {
  readonly parts: readonly LanePart[];
}

/** A collective, or several that follow one another. */
export interface LaneCollective extends Viewport {
  readonly waiting_us: number;
  readonly transfer_us: number;
  /** Total time that the other ranks wait because this rank is last. */
  readonly waited_for_us: number;
  readonly count: number;
  /** "" for several. */
  readonly kind: string;
}

export interface Lane {
  readonly rank: JobRank;
  /** False: the lane begins at the start of the rank's own recording. */
  readonly aligned: boolean;
  readonly stretches: readonly Stretch[];
  readonly collectives: readonly LaneCollective[];
}

/** A stretch of a lane, by their indices. */
export interface Spot {
  readonly lane: number;
  readonly stretch: number;
}

export function lanesOf({ ranks, timeline }: JobReport): Lane[] {
  return (timeline?.lanes ?? []).flatMap((lane) => {
    const rank = ranks[lane.at];
    if (!timeline || !rank) return [];
    const collectives = lane.collectives ? collectivesOf(lane.collectives, timeline) : [];
    return [{ rank, aligned: lane.aligned, stretches: stretchesOf(lane, timeline), collectives }];
  });
}

function stretchesOf({ start_us, end_us, parts, part, part_us }: RankLane, { parts: names }: RankTimeline) {
  let from = start_us;
  let used = 0;
  return end_us.map((end, at) => {
    const last = used + (parts[at] ?? 0);
    const own: LanePart[] = [];
    for (; used < last; used += 1) own.push({ name: names[part[used] ?? 0] ?? "", us: part_us[used] ?? 0 });
    own.sort((a, b) => orderOf(a.name) - orderOf(b.name));
    const stretch: Stretch = { start_us: from, end_us: end, parts: own };
    from = end;
    return stretch;
  });
}

function collectivesOf(columns: LaneCollectives, { kinds }: RankTimeline): LaneCollective[] {
  return columns.start_us.map((start_us, at) => ({
    start_us,
    end_us: columns.end_us[at] ?? start_us,
    waiting_us: columns.waiting_us[at] ?? 0,
    transfer_us: columns.transfer_us[at] ?? 0,
    waited_for_us: columns.waited_for_us[at] ?? 0,
    count: columns.count[at] ?? 1,
    kind: kinds[(columns.kind[at] ?? 0) - 1] ?? "",
  }));
}

/** Return the time that all lanes are in. */
export function boundsOf(lanes: readonly Lane[]): Viewport {
  const starts = lanes.flatMap(({ stretches }) => stretches[0]?.start_us ?? []);
  const ends = lanes.flatMap(({ stretches, collectives }) => [
    ...[stretches.at(-1), collectives.at(-1)].flatMap((last) => last?.end_us ?? []),
  ]);
  const start_us = starts.length > 0 ? Math.min(...starts) : 0;
  return { start_us, end_us: Math.max(start_us + 1, ...ends) };
}

/** Return the stretch of a lane at a time, else the nearest one. */
export function spotAt(lanes: readonly Lane[], lane: number, at_us: number): Spot | null {
  const stretches = lanes[lane]?.stretches ?? [];
  if (stretches.length === 0) return null;
  const after = stretches.findIndex(({ end_us }) => end_us > at_us);
  return { lane, stretch: after === -1 ? stretches.length - 1 : after };
}

/** Return the stretch that an arrow key leads to; null if there is none. */
export function besideSpot(lanes: readonly Lane[], { lane, stretch }: Spot, key: string): Spot | null {
  const own = lanes[lane]?.stretches ?? [];
  if (key === "ArrowLeft" || key === "ArrowRight") {
    const next = stretch + (key === "ArrowLeft" ? -1 : 1);
    return own[next] ? { lane, stretch: next } : null;
  }
  const now = own[stretch];
  const middle = now ? (now.start_us + now.end_us) / 2 : 0;
  return spotAt(lanes, lane + (key === "ArrowUp" ? -1 : 1), middle);
}

/** Return the collectives that begin in a stretch, as one. */
export function collectivesIn({ collectives }: Lane, { start_us, end_us }: Viewport): LaneCollective | null {
  const own = collectives.filter((one) => one.start_us >= start_us && one.start_us < end_us);
  const [first] = own;
  if (!first) return null;
  const sum = (of: (one: LaneCollective) => number) => own.reduce((all, one) => all + of(one), 0);
  return {
    start_us: first.start_us,
    end_us: Math.max(...own.map((one) => one.end_us)),
    waiting_us: sum((one) => one.waiting_us),
    transfer_us: sum((one) => one.transfer_us),
    waited_for_us: sum((one) => one.waited_for_us),
    count: sum((one) => one.count),
    kind: own.length === 1 ? first.kind : "",
  };
}

/** A share of the longest wait. Shorter waits are not marked: some rank is always last. */
const MARKED = 0.1;

/** Return the time from which on a collective is marked as one that the others wait for. */
export function markedFrom(lanes: readonly Lane[]): number {
  const times = lanes.flatMap(({ collectives }) => collectives.map((one) => one.waited_for_us));
  return Math.max(Number.MIN_VALUE, MARKED * times.reduce((most, us) => Math.max(most, us), 0));
}

/** Return a range of the timeline in the time of the rank's own recording. */
export function inRecording({ aligned, rank }: Lane, { start_us, end_us }: Viewport): Viewport {
  const offset = aligned ? rank.start_us : 0;
  return { start_us: start_us - offset, end_us: end_us - offset };
}
