// The selected event on the lanes: where it is, and the arrows to what it is linked to.

import type { Arrow, Spot } from "../../canvas/scene";
import type { Slice } from "../../canvas/slice";
import type { EventDetails, TimelineEvent } from "../../wire/report";

export interface Selected {
  readonly event: Spot | null;
  readonly arrows: readonly Arrow[];
}

const NOTHING: Selected = { event: null, arrows: [] };

/** Return the key of a lane by its number on the wire. */
export function laneKey(slice: Slice, index: number): string {
  return [...slice.lanes.values()].find((lane) => lane.index === index)?.key ?? "";
}

function spotOf(slice: Slice, { lane, depth, start_us, duration_us }: TimelineEvent): Spot {
  return { lane: laneKey(slice, lane), depth, start_us, end_us: start_us + duration_us };
}

export function spotsOf(events: readonly TimelineEvent[], slice: Slice | null): readonly Spot[] {
  return slice ? events.map((event) => spotOf(slice, event)) : [];
}

export function selectedOf(details: EventDetails | undefined, slice: Slice | null): Selected {
  if (!slice || !details?.event) return NOTHING;
  const here = spotOf(slice, details.event);
  const arrows = details.links.flatMap(({ kind, leads_here, event }): Arrow[] => {
    if (!event) return [];
    const other = spotOf(slice, event);
    return [leads_here ? { kind, from: other, to: here } : { kind, from: here, to: other }];
  });
  return { event: here, arrows };
}
