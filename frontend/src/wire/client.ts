// Requests to the plugin's routes. URLs are relative, so that TensorBoard works under any path prefix.

import type {
  CallDetails,
  CallTree,
  ClockSlice,
  EventDetails,
  GapChain,
  KernelTable,
  Matches,
  MemoryBands,
  MemorySlice,
  MemoryState,
  OperatorTable,
  RangeStatistics,
  ReportState,
  RooflinePlot,
  RunTable,
  SegmentMap,
  Timeline,
  TraceList,
} from "./report";
import type { FileParts } from "./file/events";
import { mergedRuns } from "./runs";
import { merged, sorted } from "./traces";

export class ServerError extends Error {
  constructor(
    readonly route: string,
    readonly status: number,
  ) {
    super(`the server responded with status ${status}`);
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

/** More rows of the table of runs than a screen shows. They arrive before the others. */
const FIRST_RUNS = 40;

/** Answers a route instead of the server. */
export type Source = (route: string, query: URLSearchParams) => Promise<unknown>;

let source: Source | null = null;
let parts: FileParts | null = null;

/** Take all answers from here: the page has no server. `has`: what the file has of the timeline's events. */
export function answerFrom(other: Source, has: FileParts | null): void {
  source = other;
  parts = has;
}

/** What the file has of the timeline's events, if the page is a file and has a timeline. */
export function fileParts(): FileParts | null {
  return parts;
}

/** Return whether the page can know all events of a kind in a range. */
export function fileHasEvents(of: keyof FileParts, { start_us, end_us }: TimeSpan): boolean {
  const part = parts?.[of];
  return !part || (part.start_us <= start_us && end_us <= part.end_us);
}

/** Return true if the page is a file with everything inside, about one trace. */
export function isEmbedded(): boolean {
  return source !== null;
}

async function get(route: string, query?: Query, signal?: AbortSignal): Promise<unknown> {
  if (source) return source(route, new URLSearchParams(address("", query).slice(3)));
  const answer = await fetch(address(route, query), signal ? { signal } : {});
  if (!answer.ok) throw new ServerError(route, answer.status);
  return answer.json();
}

interface Part {
  readonly generation: number;
  readonly unchanged: boolean;
  readonly more: boolean;
}

/**
 * Return a list: `known` itself if it has not changed. The server sends what has changed, in parts. `onPart` gets the
 * list so far after each part but the last, so that the page can show it before asking for more. `begin`: the query for
 * the first part.
 */
async function fetchList<T extends Part>(
  route: string,
  known: T | undefined,
  merge: (known: T | undefined, answer: T) => T,
  signal?: AbortSignal,
  onPart: (list: T) => Promise<void> = () => Promise.resolve(),
  begin?: Query,
): Promise<T> {
  let list = known;
  for (;;) {
    const answer = (await get(route, list ? { known: list.generation } : begin, signal)) as T;
    if (list && answer.unchanged) return list;
    list = merge(list, answer);
    if (!answer.more) return list;
    await onPart(list);
  }
}

export async function fetchTraces(known?: TraceList, signal?: AbortSignal): Promise<TraceList> {
  const list = await fetchList("traces", known, merged, signal);
  return list === known ? list : sorted(list);
}

export async function fetchRuns(
  known?: RunTable,
  signal?: AbortSignal,
  onPart?: (table: RunTable) => Promise<void>,
): Promise<RunTable> {
  return fetchList("runs", known, mergedRuns, signal, onPart, { first: FIRST_RUNS });
}

/** Return the report of all ranks that were recorded together with this trace. */
export async function fetchJob(id: string, signal?: AbortSignal): Promise<ReportState> {
  return (await get("job", { id }, signal)) as ReportState;
}

export async function fetchHistory(run: string, signal?: AbortSignal): Promise<ReportState> {
  return (await get("history", { run }, signal)) as ReportState;
}

export async function fetchComparison(
  base: string,
  candidate: string,
  signal?: AbortSignal,
): Promise<ReportState> {
  return (await get("compare", { base, candidate }, signal)) as ReportState;
}

/** Return the state of a report. The first request queues the analysis. */
export async function fetchReport(id: string, signal?: AbortSignal): Promise<ReportState> {
  return (await get("report", { id }, signal)) as ReportState;
}

/** Have a trace diagnosed that nobody waits for: other programs on that machine come first. */
export async function analyzeAhead(id: string): Promise<void> {
  await get("report", { id, ahead: 1 });
}

/** The same for all ranks that were recorded together with a trace. */
export async function analyzeJobAhead(id: string, signal: AbortSignal): Promise<ReportState> {
  return (await get("job", { id, ahead: 1 }, signal)) as ReportState;
}

export interface TimeSpan {
  readonly start_us: number;
  readonly end_us: number;
}

/** What each kind of slice is answered with: see tb_gpudiag/report/slices/slice_table.py. */
export interface Slices {
  readonly timeline: Timeline;
  readonly clock: ClockSlice;
  readonly memory: MemorySlice;
  readonly memoryState: MemoryState;
  readonly memoryBands: MemoryBands;
  readonly segments: SegmentMap;
  readonly gap: GapChain;
  readonly find: Matches;
  readonly event: EventDetails;
  readonly range: RangeStatistics;
  readonly operators: OperatorTable;
  readonly kernels: KernelTable;
  readonly calls: CallDetails;
  readonly callTree: CallTree;
  readonly roofline: RooflinePlot;
}

export async function fetchSlice<K extends keyof Slices>(
  kind: K,
  id: string,
  query: Query,
  signal?: AbortSignal,
): Promise<Slices[K]> {
  return (await get(kind, { id, ...query }, signal)) as Slices[K];
}

/** A range as parameters; without one, the whole recording. */
export function within(span: TimeSpan | null): Query {
  return span ? { start_us: span.start_us, end_us: span.end_us } : {};
}

/** What to search for. */
export interface Wanted {
  readonly text: string;
  readonly regex: boolean;
  readonly kind: string;
}

/** Which rows of a table of operators or kernels, in which order. */
export interface TableQuery {
  readonly group: string;
  readonly sort: string;
  readonly filter: string;
  readonly limit: number;
}

/** A row of a table: its kind (or `kernel`), its group, its key. */
export interface CallKey {
  readonly kind: string;
  readonly group: string;
  readonly key: number;
}

/** What a rule checks and how to fix what it finds, as Markdown. */
interface RulePage {
  readonly id: string;
  readonly name: string;
  readonly title: string;
  readonly markdown: string;
}

export async function fetchRule(id: string, signal?: AbortSignal): Promise<RulePage> {
  return (await get("rule", { id }, signal)) as RulePage;
}

export async function cancelAnalysis(id: string): Promise<void> {
  await get("cancel", { id });
}

export type ExportFormat = "trace" | "html" | "markdown" | "json" | "tables" | "dispute";

/** The address of a file that the server makes of a trace and its analysis. `rule`: of the finding to dispute. */
export function exportAddress(id: string, format: ExportFormat, rule = ""): string {
  return address("export", { id, format, ...(rule && { rule }) });
}

/** Load such a file. `onBytes` is called with what has arrived so far. */
export async function fetchExport(
  id: string,
  format: ExportFormat,
  signal?: AbortSignal,
  onBytes?: (bytes: number) => void,
): Promise<ArrayBuffer> {
  const answer = await fetch(exportAddress(id, format), signal ? { signal } : {});
  if (!answer.ok || !answer.body) throw await refusal(answer);
  const pieces: Uint8Array<ArrayBuffer>[] = [];
  let bytes = 0;
  for (const reader = answer.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    pieces.push(value);
    bytes += value.length;
    onBytes?.(bytes);
  }
  return new Blob(pieces).arrayBuffer();
}

async function refusal(answer: Response): Promise<Error> {
  const said: unknown = await answer.json().catch(() => null);
  const what = typeof said === "object" && said !== null && "what" in said ? said.what : null;
  return typeof what === "string" ? new Error(what) : new ServerError("export", answer.status);
}
