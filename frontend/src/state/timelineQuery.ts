// The timeline's requests to the server, other than its slices.

import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo } from "react";
import type { Viewport } from "../base/viewport";
import type { Depth } from "../canvas/slice";
import { fetchSlice, within, type Wanted } from "../wire/client";
import type { DeviceMemory, TraceEntry } from "../wire/report";
import { SLICE_KEPT_MS } from "./queries";
import { usePage, type EventKey } from "./store";

/** Load an event. A place on the timeline becomes the number of the event that is there. */
export function useEvent(entry: TraceEntry, key: EventKey | null) {
  const client = useQueryClient();
  const openEvent = usePage((page) => page.openEvent);
  const keys = (of: EventKey | null) => ["event", entry.id, entry.content, of];
  const query = useQuery({
    queryKey: keys(key),
    queryFn: ({ signal }) =>
      fetchSlice("event", entry.id, typeof key === "number" ? { event: key } : { ...key }, signal),
    enabled: key !== null,
    gcTime: SLICE_KEPT_MS,
  });
  const number = query.data?.event?.number;
  useEffect(() => {
    if (key === null || typeof key === "number" || number === undefined) return;
    client.setQueryData(["event", entry.id, entry.content, number], query.data);
    openEvent(number);
  }, [key, number, query.data, client, entry, openEvent]);
  return query;
}

/** Matches of one request. */
export const PAGE = 100;

/** While the user types, wait for a pause of this length before searching. */
const TYPING_MS = 200;

/** Load the page of matches that has this index. Without a text, there is nothing to search for. */
export function useMatches(entry: TraceEntry, wanted: Wanted, at: number) {
  const [rested] = useDebouncedValue(wanted, TYPING_MS);
  const from = Math.floor(Math.max(at, 0) / PAGE) * PAGE;
  const query = useQuery({
    queryKey: ["find", entry.id, entry.content, rested, from],
    queryFn: ({ signal }) => {
      const search = { ...rested, regex: rested.regex ? 1 : 0 };
      return fetchSlice("find", entry.id, { ...search, from, limit: PAGE }, signal);
    },
    enabled: rested.text !== "",
    placeholderData: (earlier, before) => (before?.queryKey[3] === rested ? earlier : undefined),
    gcTime: SLICE_KEPT_MS,
  });
  // Until the user pauses, the matches are those of an earlier text.
  return { ...query, data: rested === wanted ? query.data : undefined };
}

/** While the user draws a range, wait for a pause of this length before requesting its statistics. */
const DRAWING_MS = 250;

export function useRangeStatistics(entry: TraceEntry, range: Viewport) {
  const [rested] = useDebouncedValue(range, DRAWING_MS);
  return useQuery({
    queryKey: ["range", entry.id, entry.content, rested.start_us, rested.end_us],
    queryFn: ({ signal }) => fetchSlice("range", entry.id, within(rested), signal),
    placeholderData: keepPreviousData,
    gcTime: SLICE_KEPT_MS,
  });
}

const NO_CURVES: ReadonlyMap<number, Depth> = new Map();

/** Memory of one device over a range, as a curve below the lanes; none where the trace has no memory events. */
export function useMemoryCurves(
  entry: TraceEntry,
  device: DeviceMemory | undefined,
  span: Viewport | null,
  width_px: number,
): ReadonlyMap<number, Depth> {
  const of = device?.device ?? 0;
  const { data } = useQuery({
    queryKey: ["memory", entry.id, entry.content, of, span?.start_us, span?.end_us, width_px],
    queryFn: ({ signal }) =>
      fetchSlice("memory", entry.id, { device: of, ...within(span), width: width_px }, signal),
    enabled: device !== undefined && width_px > 0,
    placeholderData: keepPreviousData,
    gcTime: SLICE_KEPT_MS,
  });
  return useMemo(() => {
    const curve = data?.state === "ready" ? data.allocated : undefined;
    if (!curve || !device || curve.time_us.length === 0) return NO_CURVES;
    const depth = {
      time_us: Float64Array.from(curve.time_us),
      low: Float64Array.from(curve.low),
      high: Float64Array.from(curve.high),
      most: device.peak_allocated_bytes,
    };
    return new Map([[of, depth]]);
  }, [data, device, of]);
}
