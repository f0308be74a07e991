import { useDebouncedValue } from "@mantine/hooks";
import { useMemo, useState } from "react";
import { tileFor } from "../../base/tiles";
import { covers, type Viewport } from "../../base/viewport";
import { deepest, type Depths } from "../../canvas/rows";
import { sliceOf, type Slice } from "../../canvas/slice";
import { useTimeline } from "../../state/queries";
import type { Problem, Timeline, TraceEntry } from "../../wire/report";

/** While one zooms, slices are asked for only when the hand rests this long. */
const REST_MS = 90;

export interface Slices {
  /** The whole trace, coarse: there until the finer one comes. */
  readonly overview: Slice | null;
  /** The best slice there is for the view. */
  readonly best: Slice | null;
  readonly depths: Depths;
  readonly loading: boolean;
  readonly problem: Problem | null;
}

function useSlice(data: Timeline | undefined): Slice | null {
  return useMemo(() => (data?.state === "ready" ? sliceOf(data) : null), [data]);
}

export function useSlices(entry: TraceEntry, view: Viewport, bounds: Viewport, width_px: number): Slices {
  const [rested] = useDebouncedValue(view, REST_MS);
  const whole = useTimeline(entry, width_px > 0 ? tileFor(bounds, bounds, width_px) : null);
  const part = useTimeline(entry, width_px > 0 ? tileFor(rested, bounds, width_px) : null);
  const overview = useSlice(whole.data);
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
    depths,
    loading: whole.isFetching || part.isFetching,
    problem: failed?.error ?? (refused ? { what: refused.message, where: "", remedy: "" } : null),
  };
}
