// The pinned base, and the recording on the page against it. The comparison on the server is the only source of
// differences; where it has none, the page asks for the base's own figures by the same routes.

import { useMemo } from "react";
import { isEmbedded } from "../wire/client";
import type { Comparison, Finding, Report, TraceEntry } from "../wire/report";
import { hasEvents } from "./kinds";
import { useComparison, useReport, useTraces } from "./queries";
import { usePage } from "./store";
import { contentsOf } from "./views";

export interface Pinned {
  /** Null if the log directory does not have it. */
  readonly entry: TraceEntry | null;
}

/** Return the pinned base, or null if none is. */
export function usePinned(): Pinned | null {
  const id = usePage((page) => page.base);
  const { data } = useTraces(id !== null);
  if (id === null || !data || isEmbedded()) return null;
  return { entry: data.traces.find((trace) => trace.id === id) ?? null };
}

export interface Against {
  readonly base: TraceEntry;
  /** Both are null until they have arrived. */
  readonly comparison: Comparison | null;
  readonly report: Report | null;
  /** Why there is no comparison. */
  readonly problem: string;
}

/** Return the recording against the pinned base; null if there is none or the recording is the base itself. */
export function useAgainst(entry: TraceEntry): Against | null {
  const base = usePinned()?.entry ?? null;
  const wanted = base !== null && base.id !== entry.id && hasEvents(entry.kind);
  const found = useComparison(
    wanted ? base.id : null,
    entry.id,
    contentsOf([entry, ...(base ? [base] : [])]),
  );
  const report = useReport(base, wanted);
  if (!wanted) return null;
  const { data } = found;
  const failed = data?.state === "failed" ? (data.error?.what ?? "The recordings cannot be compared.") : "";
  return {
    base,
    comparison: data?.comparison ?? null,
    report: report.data?.report ?? null,
    problem: found.error ? `Could not compare with the base: ${found.error.message}.` : failed,
  };
}

/** Steps of the candidate and the base; null unless both have some. */
export function stepCounts(
  comparison: Comparison | null | undefined,
): { readonly own: number; readonly base: number } | null {
  const step = comparison?.step_us;
  if (!step || step.base_steps === 0 || step.candidate_steps === 0) return null;
  return { own: step.candidate_steps, base: step.base_steps };
}

/** Figures of the base for tables and curves of other recordings. 0 where its report does not say. */
export interface BaseFigures {
  readonly step_us: number;
  readonly busy_share: number;
  readonly peak_bytes: number;
  readonly floor_bytes: number;
}

export function figuresOf(report: Report): BaseFigures {
  const [device] = report.devices;
  // From the device with the most memory, as in the history.
  const memory = report.memory.filter((one) => one.device >= 0);
  const floors = memory.map(({ floors: all }) => Math.min(...all.map(({ bytes }) => bytes), Infinity));
  return {
    step_us: report.step_time?.median_us ?? 0,
    busy_share: device ? (report.verdict?.busy_share ?? 0) : 0,
    peak_bytes: Math.max(0, ...memory.map(({ peak_allocated_bytes: peak }) => peak)),
    floor_bytes: Math.max(0, ...floors.filter(Number.isFinite)),
  };
}

/** Return the figures of the pinned base, once its report is there. */
export function useBaseFigures(): BaseFigures | null {
  const base = usePinned()?.entry ?? null;
  const report = useReport(base, base !== null).data?.report;
  return useMemo(() => (report ? figuresOf(report) : null), [report]);
}

/** What became of a finding of the page's recording since the base. */
export interface FindingChange {
  readonly isNew: boolean;
  /** The base's finding, if its cost changed. */
  readonly before: Finding | null;
}

/** Return what became of each finding; an empty map without a comparison. Those that did not change are left out. */
export function findingChanges(comparison: Comparison | null): ReadonlyMap<string, FindingChange> {
  const findings = comparison?.findings;
  if (!findings) return new Map();
  const changes = new Map<string, FindingChange>();
  for (const finding of findings.new) changes.set(findingName(finding), { isNew: true, before: null });
  for (const { base, candidate } of findings.changed) {
    if (base && candidate) changes.set(findingName(candidate), { isNew: false, before: base });
  }
  return changes;
}

/** Findings of a report and of a comparison have the same titles. */
export function findingName({ rule, title }: Finding): string {
  return `${rule}\n${title}`;
}
