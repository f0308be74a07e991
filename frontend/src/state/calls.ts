// Loading tables of operators and kernels, their details, the call tree and the roofline.

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import {
  fetchSlice,
  within,
  type CallKey,
  type Slices,
  type TableQuery,
  type TimeSpan,
} from "../wire/client";
import type { TraceEntry } from "../wire/report";
import { isPending } from "./queries";
import { usePage } from "./store";

const AGAIN_MS = 700;

/** Load a slice. What `query` says is part of what it is known by. */
function useCut<K extends keyof Slices>(
  entry: TraceEntry,
  kind: K,
  query: Readonly<Record<string, string | number>>,
  wanted = true,
) {
  const visible = usePage((page) => page.visible);
  return useQuery({
    queryKey: [kind, query, entry.id, entry.content],
    queryFn: ({ signal }) => fetchSlice(kind, entry.id, query, signal),
    enabled: wanted && visible,
    placeholderData: keepPreviousData,
    refetchInterval: ({ state }) => (visible && isPending(state.data?.state ?? "") ? AGAIN_MS : false),
  });
}

export function useOperators(
  entry: TraceEntry,
  kind: string,
  query: TableQuery,
  span: TimeSpan | null,
  wanted: boolean,
) {
  return useCut(entry, "operators", { kind, ...query, ...within(span) }, wanted);
}

export function useKernels(entry: TraceEntry, query: TableQuery, span: TimeSpan | null, wanted: boolean) {
  return useCut(entry, "kernels", { ...query, ...within(span) }, wanted);
}

export function useCalls(entry: TraceEntry, row: CallKey, span: TimeSpan | null) {
  return useCut(entry, "calls", { ...row, ...within(span) });
}

/** Load the call tree below a node, or of all threads if `root` is null. */
export function useCallTree(
  entry: TraceEntry,
  weight: string,
  root: number | null,
  span: TimeSpan | null,
  wanted: boolean,
) {
  const below = root === null ? {} : { root };
  return useCut(entry, "callTree", { weight, ...below, ...within(span) }, wanted);
}

export function useRoofline(entry: TraceEntry, wanted: boolean) {
  return useCut(entry, "roofline", {}, wanted);
}

/** Load what was live on a device at a time. */
export function useMemoryState(entry: TraceEntry, device: number, at_us: number) {
  return useCut(entry, "memoryState", { device, at_us });
}

/** Load what the largest allocations hold over a range, or over the whole recording if `span` is null. */
export function useMemoryBands(
  entry: TraceEntry,
  device: number,
  span: TimeSpan | null,
  width: number,
  wanted: boolean,
) {
  return useCut(entry, "memoryBands", { device, ...within(span), width }, wanted);
}

/** Load the segments of a device's memory at a time. Only snapshots have them. */
export function useSegments(entry: TraceEntry, device: number, at_us: number) {
  return useCut(entry, "segments", { device, at_us });
}
