// What a file contains besides a trace.

import { FILE_KINDS } from "../base/vocabulary";
import { term } from "../base/terms";

/** Label of the kind. Empty for a trace, the usual kind. */
export function kindText(kind: string): string {
  return onlyMemory(kind) ? (term(FILE_KINDS, kind)?.word ?? kind) : "";
}

/** Whether the file is about memory alone: no GPU work, no launches, no timeline. */
export function onlyMemory(kind: string | undefined): boolean {
  return kind === "snapshot" || kind === "memory_timeline";
}
