// What a file is, beside a trace of what ran when.

const LABELS: Readonly<Record<string, string>> = {
  snapshot: "CUDA memory snapshot",
  memory_timeline: "Memory timeline",
};

/** Empty for a trace, which is what files usually are. */
export function kindText(kind: string): string {
  return LABELS[kind] ?? "";
}

/** Whether it tells of memory alone: no GPU work, no launches, nothing to put on a timeline. */
export function onlyMemory(kind: string | undefined): boolean {
  return kind !== undefined && Object.hasOwn(LABELS, kind);
}
