// The request for the steps of a clock.

import { useQuery } from "@tanstack/react-query";
import { fetchSlice } from "../wire/client";
import type { TraceEntry } from "../wire/report";
import type { StepSpan } from "./clock";
import { BUSY_MS, isPending, SLICE_KEPT_MS } from "./queries";
import { usePage } from "./store";

/** A wide screen has about as many pixels for them. */
const CLOCK_BINS = 1600;

/** Load the steps of one rank's clock in bins, or the whole run if `span` is null. */
export function useClock(entry: TraceEntry, rank: number, span: StepSpan | null) {
  const visible = usePage((page) => page.visible);
  return useQuery({
    queryKey: ["clock", entry.id, entry.content, rank, span?.start, span?.end],
    queryFn: ({ signal }) => fetchSlice("clock", entry.id, { rank, ...span, width: CLOCK_BINS }, signal),
    enabled: visible,
    // Never show another rank's steps as a placeholder.
    placeholderData: (earlier, query) => (query?.queryKey[3] === rank ? earlier : undefined),
    gcTime: SLICE_KEPT_MS,
    refetchInterval: ({ state }) => (visible && isPending(state.data?.state ?? "") ? BUSY_MS : false),
  });
}
