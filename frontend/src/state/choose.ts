// Which traces there are to choose from, level by level: run, worker, span.

import { date } from "../base/format";
import type { TraceEntry } from "../wire/report";

/** Traces by a name, in the server's order. */
export type Named = ReadonlyMap<string, readonly TraceEntry[]>;

export interface Chosen {
  readonly runs: Named;
  /** Of the chosen run. */
  readonly workers: Named;
  /** Of the chosen worker. */
  readonly spans: readonly TraceEntry[];
}

/** The three lists that a chooser shows while `entry` is chosen, in the server's order. */
export function levels(traces: readonly TraceEntry[], entry: TraceEntry | null): Chosen {
  const runs = grouped(traces, ({ run }) => run);
  const workers = grouped(runs.get(entry?.run ?? "") ?? [], ({ worker }) => worker);
  return { runs, workers, spans: workers.get(entry?.worker ?? "") ?? [] };
}

function grouped(traces: readonly TraceEntry[], name: (entry: TraceEntry) => string): Named {
  const found = new Map<string, TraceEntry[]>();
  for (const entry of traces) {
    const others = found.get(name(entry));
    if (others) others.push(entry);
    else found.set(name(entry), [entry]);
  }
  return found;
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

/** Whether every word of what is looked for is in the name, in any order. */
export function isNamed(name: string, looked_for: string): boolean {
  const text = name.toLowerCase();
  return looked_for
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}
