// Slices of a timeline next to each other, as one.

import type { Curve, Lane, Timeline } from "./report";

/** Join slices in order of time. All have the same lanes. */
export function joined(slices: readonly Timeline[]): Timeline {
  const [first, ...others] = slices;
  if (!first) throw new RangeError("there is no slice");
  if (others.length === 0) return first;
  const names = [...new Set(slices.flatMap((slice) => slice.names))];
  const index = new Map(names.map((name, at) => [name, at]));
  const starts = new Set<number>();
  return {
    ...first,
    end_us: slices[slices.length - 1]?.end_us ?? first.end_us,
    names,
    steps: slices
      .flatMap(({ steps }) => steps)
      .filter(({ start_us }) => !starts.has(start_us) && starts.add(start_us)),
    lanes: first.lanes.map((_, at) => joinedLane(slices, at, index)),
  };
}

function joinedLane(slices: readonly Timeline[], at: number, index: ReadonlyMap<string, number>): Lane {
  const parts = slices.flatMap((slice, place) => {
    const lane = slice.lanes[at];
    if (!lane) return [];
    const named = { ...lane, box_name: lane.box_name.map((name) => index.get(slice.names[name] ?? "") ?? 0) };
    // A box that began in the slice before is there already.
    return [place === 0 ? named : without(named, slice.start_us)];
  });
  return parts.reduce((before, part) => ({
    ...columns(before, (name, column) => [...column, ...(part[name] as number[])]),
    ...(before.queue && part.queue ? { queue: joinedCurve(before.queue, part.queue) } : {}),
  }));
}

function without(lane: Lane, before_us: number): Lane {
  const kept = lane.box_start_us.flatMap((start, at) => (start >= before_us ? [at] : []));
  return columns(lane, (_, column) => kept.flatMap((at) => column[at] ?? []));
}

/** Change the columns of a lane's boxes, which are the arrays of its fields. */
function columns(lane: Lane, change: (name: keyof Lane, column: readonly number[]) => number[]): Lane {
  const changed: Partial<Record<keyof Lane, unknown>> = { ...lane };
  for (const name of Object.keys(lane) as (keyof Lane)[]) {
    const value = lane[name];
    if (Array.isArray(value)) changed[name] = change(name, value);
  }
  return changed as Lane;
}

function joinedCurve(a: Curve, b: Curve): Curve {
  return {
    time_us: [...a.time_us, ...b.time_us],
    low: [...a.low, ...b.low],
    high: [...a.high, ...b.high],
  };
}
