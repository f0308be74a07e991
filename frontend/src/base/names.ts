// How names of events are shown.

const FRAME = /^(.{1,400})\((\d{1,9})\): (.+)$/s;
const MODULE = "nn.Module: ";

/** A Python frame with its function first: "forward  model.py:12". Any other name stays as it is. */
export function functionFirst(name: string): string {
  const frame = FRAME.exec(name);
  if (frame) return `${frame[3] ?? ""}  ${frame[1] ?? ""}:${frame[2] ?? ""}`;
  return name.startsWith(MODULE) ? `${name.slice(MODULE.length)}  nn.Module` : name;
}
