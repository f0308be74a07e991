// Rows of the tables of operators and kernels against the base's rows of the same name, shapes, stack or module:
// per step, over the step window of each side.

import { useMemo } from "react";
import type { TableQuery, TimeSpan } from "../wire/client";
import type { Comparison, KernelRow, OperatorRow, Report } from "../wire/report";
import type { TraceEntry } from "../wire/report";
import { stepCounts, type Against } from "./base";
import { useKernels, useOperators } from "./calls";

/** Calls and time per step of a row, on both sides. */
export interface RowChange {
  readonly calls: number;
  readonly base_calls: number;
  readonly host_us: number;
  readonly base_host_us: number;
  readonly gpu_us: number;
  readonly base_gpu_us: number;
  /** The kernel of the base that this one replaces, if its name is another. */
  readonly was: string;
}

export interface TableChange {
  readonly rows: ReadonlyMap<string, RowChange>;
  /** Rows that only the base has, most time first. */
  readonly gone: readonly { readonly name: string; readonly us: number }[];
}

/** All rows that the server gives. */
const LIMIT = 2000;

interface Cells {
  readonly name: string;
  readonly calls: number;
  readonly host_us: number;
  readonly gpu_us: number;
}

function ofOperator({ name, calls, host_self_us, gpu_self_us }: OperatorRow): Cells {
  return { name, calls, host_us: host_self_us, gpu_us: gpu_self_us };
}

function ofKernel({ name, count, total_us }: KernelRow): Cells {
  return { name, calls: count, host_us: 0, gpu_us: total_us };
}

/** What makes a row the same on both sides. Its key on the server is a number of the trace. */
export function rowName(row: OperatorRow | KernelRow): string {
  return "calls" in row
    ? [row.name, row.shapes, ...row.stack].join("\n")
    : [row.name, ...row.operators].join("\n");
}

interface Side<T> {
  readonly rows: readonly T[];
  readonly total_rows: number;
}

/** Pair the rows of both sides by `nameOf`. `renamed`: the base's row of a kernel with another name. */
export function tableChange<T>(
  own: Side<T>,
  base: Side<T>,
  steps: { readonly own: number; readonly base: number },
  nameOf: (row: T) => string,
  cellsOf: (row: T) => Cells,
  renamed: ReadonlyMap<string, string> = new Map(),
): TableChange {
  const left = new Map(base.rows.map((row) => [nameOf(row), cellsOf(row)]));
  const pairs = own.rows.map((row) => {
    const name = nameOf(row);
    const was = left.has(name) ? name : (renamed.get(name) ?? name);
    const before = left.get(was);
    return { name, now: cellsOf(row), before, was: was === name ? "" : was };
  });
  for (const { name, was } of pairs) left.delete(was || name);
  // Where the base's table is cut off, a row without a counterpart may have one.
  const whole = base.rows.length >= base.total_rows;
  const rows = new Map(
    pairs
      .filter(({ before }) => before !== undefined || whole)
      .map(({ name, now, before, was }) => [
        name,
        {
          calls: now.calls / steps.own,
          base_calls: (before?.calls ?? 0) / steps.base,
          host_us: now.host_us / steps.own,
          base_host_us: (before?.host_us ?? 0) / steps.base,
          gpu_us: now.gpu_us / steps.own,
          base_gpu_us: (before?.gpu_us ?? 0) / steps.base,
          was,
        },
      ]),
  );
  const gone = own.rows.length < own.total_rows ? [] : [...left.values()];
  return {
    rows,
    gone: gone
      .map(({ name, gpu_us, host_us }) => ({ name, us: (gpu_us || host_us) / steps.base }))
      .filter(({ us }) => us > 0)
      .sort((a, b) => b.us - a.us),
  };
}

/** Kernels of the comparison that have another name than the one of the base that they replace. */
function renamedKernels(comparison: Comparison): ReadonlyMap<string, string> {
  return new Map(
    comparison.kernels.flatMap(({ name, candidate_name: now }) => (now && now !== name ? [[now, name]] : [])),
  );
}

function windowOf(report: Report): TimeSpan | null {
  const [device] = report.devices;
  const [first] = report.steps;
  const last = report.steps.at(-1);
  if (device) return span(device.window_start_us, device.window_us);
  return first && last ? span(first.start_us, last.start_us + last.duration_us - first.start_us) : null;
}

function span(start_us: number, length_us: number): TimeSpan {
  return { start_us, end_us: start_us + length_us };
}

/** Return the table against the base's; null without a base, without steps on both sides, or while it loads. */
export function useTableChange(
  entry: TraceEntry,
  report: Report,
  against: Against | null,
  kind: string,
  asked: TableQuery,
  wanted: boolean,
): TableChange | null {
  const comparison = (wanted ? against?.comparison : null) ?? null;
  const theirs = against?.report ?? null;
  const ready = stepCounts(comparison) !== null && theirs !== null;
  const kernels = kind === "kernel";
  const byName = asked.group === "kernel";
  const query = { ...asked, limit: LIMIT };
  const own = ready ? windowOf(report) : null;
  const base = ready ? windowOf(theirs) : null;
  const other = against?.base ?? entry;
  const now = readyData(useOperators(entry, kind, query, own, ready && !kernels));
  const before = readyData(useOperators(other, kind, query, base, ready && !kernels));
  const nowRuns = readyData(useKernels(entry, query, own, ready && kernels));
  const beforeRuns = readyData(useKernels(other, query, base, ready && kernels));
  return useMemo(() => {
    const steps = stepCounts(comparison);
    if (!comparison || !steps) return null;
    if (!kernels) return now && before && tableChange(now, before, steps, rowName, ofOperator);
    const nameOf = byName ? ({ name }: KernelRow) => name : rowName;
    const renamed = byName ? renamedKernels(comparison) : undefined;
    return nowRuns && beforeRuns && tableChange(nowRuns, beforeRuns, steps, nameOf, ofKernel, renamed);
  }, [comparison, kernels, byName, now, before, nowRuns, beforeRuns]);
}

/** The answer to this query, not the placeholder that is shown until it arrives. */
function readyData<T extends { readonly state: string }>(found: {
  readonly data: T | undefined;
  readonly isPlaceholderData: boolean;
}): T | null {
  return found.data?.state === "ready" && !found.isPlaceholderData ? found.data : null;
}
