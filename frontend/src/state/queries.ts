// The page's requests to the server, and how often it polls.

import { keepPreviousData, QueryClient, useQuery } from "@tanstack/react-query";
import type { Viewport } from "../base/viewport";
import {
  fetchComparison,
  fetchHistory,
  fetchJob,
  fetchReport,
  fetchRuns,
  fetchSlice,
  within,
  fetchTraces,
  ServerError,
} from "../wire/client";
import type { RunTable, TraceEntry, TraceList } from "../wire/report";
import { usePage, type GapKey } from "./store";

/** Poll this often while an analysis runs. */
export const BUSY_MS = 800;

/** Poll this often for a report: until it is there, the page has nothing to read. */
const REPORT_MS = 300;

/** Poll this often otherwise. The server scans the directory every two seconds. */
const IDLE_MS = 3000;

/** Keep slices this long, so that going back needs no new request. */
export const SLICE_KEPT_MS = 120_000;

export function isPending(state: string): boolean {
  return state === "queued" || state === "running";
}

export function createQueryClient(): QueryClient {
  return new QueryClient({
    defaultOptions: {
      queries: {
        // Polling repeats requests anyway, and a request that the server refused would be refused again.
        retry: (failures, error) => failures < 2 && !(error instanceof ServerError),
        refetchOnWindowFocus: false,
        networkMode: "always",
        staleTime: Infinity,
      },
    },
  });
}

export const TRACES = ["traces"] as const;

export function useTraces(wanted = true) {
  const visible = usePage((page) => page.visible);
  return useQuery({
    queryKey: TRACES,
    queryFn: ({ client, signal }) => fetchTraces(client.getQueryData<TraceList>(TRACES), signal),
    enabled: wanted,
    staleTime: 0,
    refetchInterval: ({ state }) => (visible ? pollEvery(state.data) : false),
  });
}

function pollEvery(list: TraceList | undefined): number {
  const busy = !list?.scanned || list.traces.some((entry) => isPending(entry.state) || entry.writing);
  return busy ? BUSY_MS : IDLE_MS;
}

/** Load a report. The request starts the analysis. A changed file has new `content`, so it is requested again, and
 *  one that failed when the page shows it again: a deleted file may be back. */
export function useReport(entry: TraceEntry | null, wanted: boolean) {
  const visible = usePage((page) => page.visible);
  return useQuery({
    queryKey: ["report", entry?.id, entry?.content],
    queryFn: ({ signal }) => fetchReport(entry?.id ?? "", signal),
    enabled: entry !== null && wanted && visible,
    staleTime: ({ state }) => (state.data?.state === "failed" ? 0 : Infinity),
    placeholderData: (earlier, query) => (query?.queryKey[1] === entry?.id ? earlier : undefined),
    // After an error, too: the next request may be answered.
    refetchInterval: ({ state: { data, error } }) => {
      if (!visible || !(error || isPending(data?.state ?? ""))) return false;
      return error ? IDLE_MS : data?.report ? BUSY_MS : REPORT_MS;
    },
  });
}

/** Load a slice of the timeline, or the whole trace if `span` is null. */
export function useTimeline(entry: TraceEntry, span: Viewport | null, width_px: number, wanted: boolean) {
  const visible = usePage((page) => page.visible);
  return useQuery({
    queryKey: ["timeline", entry.id, entry.content, span?.start_us, span?.end_us, width_px],
    queryFn: ({ signal }) => fetchSlice("timeline", entry.id, { ...within(span), width: width_px }, signal),
    enabled: wanted && visible,
    placeholderData: keepPreviousData,
    gcTime: SLICE_KEPT_MS,
    refetchInterval: ({ state }) => (visible && isPending(state.data?.state ?? "") ? BUSY_MS : false),
  });
}

export function useGap(entry: TraceEntry, key: GapKey | null) {
  return useQuery({
    queryKey: ["gap", entry.id, entry.content, key?.device, key?.gap],
    queryFn: ({ signal }) =>
      fetchSlice("gap", entry.id, { device: key?.device ?? 0, gap: key?.gap ?? 0 }, signal),
    enabled: key !== null,
  });
}

/** Rows that have arrived are rendered before the server, often on the same machine, makes more of them. */
const RENDERED_MS = 100;

export const RUNS = ["runs"] as const;

export function useRuns(wanted = true) {
  const visible = usePage((page) => page.visible);
  return useQuery({
    queryKey: RUNS,
    enabled: wanted,
    queryFn: ({ client, signal }) =>
      fetchRuns(client.getQueryData<RunTable>(RUNS), signal, (table) => {
        client.setQueryData(RUNS, table);
        return new Promise((resolve) => window.setTimeout(resolve, RENDERED_MS));
      }),
    staleTime: 0,
    refetchInterval: ({ state: { data } }) => {
      if (!visible) return false;
      return !data?.scanned || data.rows.some((row) => isPending(row.state)) ? BUSY_MS : IDLE_MS;
    },
  });
}

interface Answer {
  readonly state: string;
}

/** Load an answer about several traces. The request starts the analyses that it needs, so poll until it is ready. */
function useAnswer<T extends Answer>(
  key: readonly string[],
  wanted: boolean,
  fetch: (signal: AbortSignal) => Promise<T>,
  every_ms = BUSY_MS,
) {
  const visible = usePage((page) => page.visible);
  return useQuery({
    queryKey: key,
    queryFn: ({ signal }) => fetch(signal),
    enabled: wanted && visible,
    // While changed files are analyzed again, keep showing the previous answer.
    placeholderData: (earlier, query) =>
      query?.queryKey.slice(0, -1).join() === key.slice(0, -1).join() ? earlier : undefined,
    refetchInterval: ({ state }) => (visible && isPending(state.data?.state ?? "") ? every_ms : false),
  });
}

/** `contents` changes whenever one of the files does: see `contentsOf`. */
export function useJob(id: string, contents: string, wanted = true) {
  return useAnswer(["job", id, contents], wanted, (signal) => fetchJob(id, signal));
}

export function useHistory(run: string, contents: string) {
  return useAnswer(["history", run, contents], true, (signal) => fetchHistory(run, signal));
}

export function useComparison(base: string | null, candidate: string, contents: string) {
  return useAnswer(["compare", base ?? "", candidate, contents], base !== null, (signal) =>
    fetchComparison(base ?? "", candidate, signal),
  );
}
