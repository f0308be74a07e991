// Which traces there are to choose from, level by level: run, worker, span.

import { date } from "../base/format";
import type { TraceEntry } from "../wire/report";

export interface Chosen {
  readonly runs: readonly string[];
  readonly workers: readonly string[];
  readonly spans: readonly TraceEntry[];
}

/** The three lists that a chooser shows while `entry` is chosen, in the server's order. */
export function levels(traces: readonly TraceEntry[], entry: TraceEntry | null): Chosen {
  const inRun = traces.filter((other) => other.run === entry?.run);
  return {
    runs: [...new Set(traces.map((other) => other.run))],
    workers: [...new Set(inRun.map((other) => other.worker))],
    spans: inRun.filter((other) => other.worker === entry?.worker),
  };
}

/** What to show when nothing is chosen: the newest file that can be read, else the newest. */
export function newest(traces: readonly TraceEntry[]): TraceEntry | null {
  const readable = traces.filter((entry) => entry.state !== "failed");
  return (readable.length > 0 ? readable : traces).reduce<TraceEntry | null>(
    (best, entry) => (best === null || entry.modified_s > best.modified_s ? entry : best),
    null,
  );
}

/** Where to go when `run` is chosen: to the same worker as before where there is one, and to its newest file. */
export function inRun(traces: readonly TraceEntry[], run: string, worker?: string): TraceEntry | null {
  const all = traces.filter((entry) => entry.run === run);
  const same = all.filter((entry) => entry.worker === worker);
  return newest(same.length > 0 ? same : all);
}

/** A span is the time of recording, in ms or ns since 1970, where the handler wrote it; else it is only a name. */
export function spanLabel(span: string): string {
  if (!/^\d{12,20}$/.test(span)) return span || "–";
  const ms = Number(span) / 10 ** (span.length - 13);
  return date(ms / 1000);
}
