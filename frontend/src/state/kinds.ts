// What a file contains besides a trace.

import { FILE_KINDS } from "../base/vocabulary";
import type { TraceInfo_Kind } from "../wire/report";

/** Label of the kind. Empty for a trace, the usual kind. */
export function kindText(kind: TraceInfo_Kind): string {
  if (kind === "trace") return "";
  return kind === "job" ? kind : FILE_KINDS[kind].word;
}

/** Whether there is a trace, with a timeline and operators, and not a file about memory or a report alone. */
export function hasEvents(kind: TraceInfo_Kind | undefined): boolean {
  return !onlyMemory(kind) && !onlyReport(kind);
}

/** Whether the two can be compared: by their times, or by their memory alone. */
export function comparable(kind: TraceInfo_Kind, other: TraceInfo_Kind): boolean {
  return !onlyReport(kind) && onlyMemory(kind) === onlyMemory(other);
}

/** Whether there is nothing besides the report: no events, no memory. */
export function onlyReport(kind: TraceInfo_Kind | undefined): boolean {
  return onlyRecord(kind) || kind === "hang" || kind === "clock";
}

/** Whether the trace was not kept: there is only what the training job left in an event file. */
export function onlyRecord(kind: TraceInfo_Kind | undefined): boolean {
  return kind === "record";
}

/** Whether the file is about memory alone: no GPU work, no launches, no timeline. */
export function onlyMemory(kind: TraceInfo_Kind | undefined): boolean {
  return kind === "snapshot" || kind === "memory_timeline";
}
