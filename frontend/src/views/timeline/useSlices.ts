import { useDebouncedValue } from "@mantine/hooks";
import { useMemo, useState } from "react";
import { tileFor, tileWidth } from "../../base/tiles";
import { clamp, covers, type Viewport } from "../../base/viewport";
import { deepest, type Depths } from "../../canvas/rows";
import { sliceOf, type Slice } from "../../canvas/slice";
import { useTimeline } from "../../state/queries";
import type { Problem, Timeline, TraceEntry } from "../../wire/report";

/** While the user zooms, wait for a pause of this length before requesting a slice. */
const REST_MS = 90;

export interface Slices {
  /** The whole trace at low resolution, shown until a finer slice arrives. */
  readonly overview: Slice | null;
  /** The finest slice available for the view. */
  readonly best: Slice | null;
  /** The range of the whole trace, or null until it is known. */
  readonly bounds: Viewport | null;
  /** The visible range. */
  readonly view: Viewport;
  readonly depths: Depths;
  /** The range of the finest slice, null for the whole trace, and its width. */
  readonly tile: Viewport | null;
  readonly width_px: number;
  readonly loading: boolean;
  readonly problem: Problem | null;
}

const NOWHERE: Viewport = { start_us: 0, end_us: 1 };

/** A trace of a single event without duration still needs a time axis. */
const SHORTEST_US = 1;

function extent({ start_us, end_us }: Slice): Viewport {
  return { start_us, end_us: Math.max(end_us, start_us + SHORTEST_US) };
}

function useSlice(data: Timeline | undefined): Slice | null {
  return useMemo(() => (data?.state === "ready" ? sliceOf(data) : null), [data]);
}

/** Load the slices for the view `wanted`, or the whole trace if null. `width_px` is 0 until it is measured. */
export function useSlices(entry: TraceEntry, wanted: Viewport | null, width_px: number): Slices {
  const width = tileWidth(width_px);
  const whole = useTimeline(entry, null, width, width_px > 0);
  const overview = useSlice(whole.data);
  const bounds = useMemo(() => overview && extent(overview), [overview]);
  const view = useMemo(
    () => (bounds ? (wanted ? clamp(wanted, bounds) : bounds) : NOWHERE),
    [wanted, bounds],
  );

  const [rested] = useDebouncedValue(bounds && view, REST_MS);
  const tile = bounds && rested && tileFor(rested, bounds);
  // The width is 0 again while the frame is hidden.
  const part = useTimeline(entry, tile, width, tile !== null && width_px > 0);
  const detail = useSlice(part.data);
  const best = detail && covers(detail, view) ? detail : overview;

  const [depths, setDepths] = useState<Depths>(new Map());
  const grown = best ? deepest(depths, best) : depths;
  if (grown !== depths) setDepths(grown);

  const failed = [whole.data, part.data].find((data) => data?.state === "failed");
  const refused = whole.error ?? part.error;
  return {
    overview,
    best,
    bounds,
    view,
    depths,
    tile,
    width_px: width_px > 0 ? width : 0,
    loading: whole.isFetching || part.isFetching,
    problem: failed?.error ?? (refused ? { what: refused.message, where: "", remedy: "" } : null),
  };
}
