// The memory view's requests to the server.

import { useDebouncedValue } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { tileFor, tileWidth } from "../base/tiles";
import { clamp, covers, type Viewport } from "../base/viewport";
import { fetchSlice, within } from "../wire/client";
import type { MemorySlice, TraceEntry } from "../wire/report";
import { columnsOf, type Columns } from "./memoryCurve";
import { BUSY_MS, isPending, SLICE_KEPT_MS } from "./queries";
import { usePage } from "./store";

/** While the user zooms or selects, wait for a pause of this length before requesting a slice. */
const REST_MS = 90;

function useMemory(
  entry: TraceEntry,
  device: number,
  span: Viewport | null,
  width_px: number,
  wanted: boolean,
) {
  const visible = usePage((page) => page.visible);
  return useQuery({
    queryKey: ["memory", entry.id, entry.content, device, span?.start_us, span?.end_us, width_px],
    queryFn: ({ signal }) =>
      fetchSlice("memory", entry.id, { device, ...within(span), width: width_px }, signal),
    enabled: wanted && visible,
    // Never show another device's curve as a placeholder.
    placeholderData: (earlier, query) => (query?.queryKey[3] === device ? earlier : undefined),
    gcTime: SLICE_KEPT_MS,
    refetchInterval: ({ state }) => (visible && isPending(state.data?.state ?? "") ? BUSY_MS : false),
  });
}

export interface MemorySlices {
  /** The whole recording at low resolution. */
  readonly whole: MemorySlice | null;
  /** The finest curve available for the view. */
  readonly columns: Columns | null;
  readonly bounds: Viewport;
  readonly view: Viewport;
  readonly loading: boolean;
  readonly failed: string;
}

const NOWHERE: Viewport = { start_us: 0, end_us: 1 };
const SHORTEST_US = 1;

function ready(data: MemorySlice | undefined): MemorySlice | null {
  return data?.state === "ready" ? data : null;
}

/** Load the curve for the view `wanted`, or for everything if null. `width_px` is 0 until measured. */
export function useMemorySlices(
  entry: TraceEntry,
  device: number,
  wanted: Viewport | null,
  width_px: number,
): MemorySlices {
  const width = tileWidth(width_px);
  const query = useMemory(entry, device, null, width, width_px > 0);
  const whole = ready(query.data);
  const bounds = useMemo(() => {
    if (!whole) return NOWHERE;
    const { trace_start_us: start_us, trace_end_us: end_us } = whole;
    return { start_us, end_us: Math.max(end_us, start_us + SHORTEST_US) };
  }, [whole]);
  const view = useMemo(() => (wanted && whole ? clamp(wanted, bounds) : bounds), [wanted, whole, bounds]);

  const [rested] = useDebouncedValue(whole && view, REST_MS);
  const tile = whole && !whole.exact && rested ? tileFor(rested, bounds) : null;
  // The width is 0 again while the frame is hidden.
  const part = useMemory(entry, device, tile, width, tile !== null && width_px > 0);
  const detail = ready(part.data);
  const best = detail && covers(detail, view) ? detail : whole;
  const columns = useMemo(() => best && columnsOf(best), [best]);
  return {
    whole,
    columns,
    bounds,
    view,
    loading: query.isFetching || part.isFetching,
    failed: (query.error ?? part.error)?.message ?? "",
  };
}

/** Load what a range allocated and freed, or the whole recording if `range` is null. */
export function useRange(entry: TraceEntry, device: number, range: Viewport | null): MemorySlice | null {
  const [rested] = useDebouncedValue(range, REST_MS);
  const { data } = useMemory(entry, device, rested, 1, rested !== null && rested.end_us > rested.start_us);
  return ready(data);
}
