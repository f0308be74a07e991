// Asks the plugin's routes. Addresses are relative, so that TensorBoard works under any prefix.

import type { GapChain, MemorySlice, ReportState, Timeline, TraceList } from "./report";

export class ServerError extends Error {
  constructor(
    readonly route: string,
    readonly status: number,
  ) {
    super(`${route} answered ${status}`);
    this.name = "ServerError";
  }
}

type Query = Readonly<Record<string, string | number>>;

export function address(route: string, query: Query = {}): string {
  const text = Object.entries(query)
    .map(([key, value]) => `${key}=${encodeURIComponent(value)}`)
    .join("&");
  return text ? `./${route}?${text}` : `./${route}`;
}

async function get(route: string, query?: Query, signal?: AbortSignal): Promise<unknown> {
  const answer = await fetch(address(route, query), signal ? { signal } : {});
  if (!answer.ok) throw new ServerError(route, answer.status);
  return answer.json();
}

/** `known` itself where the list is still that one. */
export async function fetchTraces(known?: TraceList, signal?: AbortSignal): Promise<TraceList> {
  const list = (await get("traces", known && { known: known.generation }, signal)) as TraceList;
  return known && list.unchanged ? known : list;
}

/** Asking for a report queues its analysis. */
export async function fetchReport(id: string, signal?: AbortSignal): Promise<ReportState> {
  return (await get("report", { id }, signal)) as ReportState;
}

export interface TimeSpan {
  readonly start_us: number;
  readonly end_us: number;
}

/** A slice of the timeline for so many pixels; of the whole trace where no span is given. */
export async function fetchTimeline(
  id: string,
  span: TimeSpan | null,
  width_px: number,
  signal?: AbortSignal,
): Promise<Timeline> {
  const range = span && { start_us: span.start_us, end_us: span.end_us };
  return (await get("timeline", { id, ...range, width: width_px }, signal)) as Timeline;
}

/** One device's memory over a span, for so many pixels; over the whole recording where no span is given. */
export async function fetchMemory(
  id: string,
  device: number,
  span: TimeSpan | null,
  width_px: number,
  signal?: AbortSignal,
): Promise<MemorySlice> {
  const range = span && { start_us: span.start_us, end_us: span.end_us };
  return (await get("memory", { id, device, ...range, width: width_px }, signal)) as MemorySlice;
}

export async function fetchGap(
  id: string,
  device: number,
  gap: number,
  signal?: AbortSignal,
): Promise<GapChain> {
  return (await get("gap", { id, device, gap }, signal)) as GapChain;
}

export async function cancelAnalysis(id: string): Promise<void> {
  await get("cancel", { id });
}
