// Loading tables of operators and kernels, their details, the call tree and the roofline.

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import {
  fetchCalls,
  fetchCallTree,
  fetchKernels,
  fetchMemoryState,
  fetchOperators,
  fetchRoofline,
  fetchSegments,
} from "../wire/client";
import type { CallKey, TableQuery, TimeSpan } from "../wire/client";
import type { TraceEntry } from "../wire/report";
import { isPending } from "./queries";
import { usePage } from "./store";

const AGAIN_MS = 700;

interface Answer {
  readonly state: string;
}

function useCut<T extends Answer>(
  entry: TraceEntry,
  key: readonly unknown[],
  fetch: (signal: AbortSignal) => Promise<T>,
  wanted = true,
) {
  const visible = usePage((page) => page.visible);
  return useQuery({
    queryKey: [...key, entry.id, entry.content],
    queryFn: ({ signal }) => fetch(signal),
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
  return useCut(
    entry,
    ["operators", kind, query, span],
    (signal) => fetchOperators(entry.id, kind, query, span, signal),
    wanted,
  );
}

export function useKernels(entry: TraceEntry, query: TableQuery, span: TimeSpan | null, wanted: boolean) {
  return useCut(
    entry,
    ["kernels", query, span],
    (signal) => fetchKernels(entry.id, query, span, signal),
    wanted,
  );
}

export function useCalls(entry: TraceEntry, row: CallKey, span: TimeSpan | null) {
  return useCut(entry, ["calls", row, span], (signal) => fetchCalls(entry.id, row, span, signal));
}

export function useCallTree(
  entry: TraceEntry,
  weight: string,
  root: number | null,
  span: TimeSpan | null,
  wanted: boolean,
) {
  return useCut(
    entry,
    ["callTree", weight, root, span],
    (signal) => fetchCallTree(entry.id, weight, root, span, signal),
    wanted,
  );
}

export function useRoofline(entry: TraceEntry, wanted: boolean) {
  return useCut(entry, ["roofline"], (signal) => fetchRoofline(entry.id, signal), wanted);
}

export function useMemoryState(entry: TraceEntry, device: number, at_us: number) {
  return useCut(entry, ["memoryState", device, at_us], (signal) =>
    fetchMemoryState(entry.id, device, at_us, signal),
  );
}

export function useSegments(entry: TraceEntry, device: number, at_us: number) {
  return useCut(entry, ["segments", device, at_us], (signal) =>
    fetchSegments(entry.id, device, at_us, signal),
  );
}
