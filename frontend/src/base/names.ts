// How names of events are shown.

const FRAME = /^(.{1,400})\((\d{1,9})\): (.+)$/s;
/** A kernel's name without what tells least: its result and its arguments, "void gemm<float>(int, int)". */
export function withoutArguments(name: string): string {
  const short = name.replace(/^void /, "");
  if (!short.endsWith(")")) return short;
  let open = 0;
  for (let at = short.length - 1; at > 0; at -= 1) {
    if (short[at] === ")") open += 1;
    else if (short[at] === "(" && --open === 0)
      return /[\w>]$/.test(short.slice(0, at)) ? short.slice(0, at) : short;
  }
  return short;
}

const MODULE = "nn.Module: ";

/** A Python frame with its function first: "forward  model.py:12". Any other name stays as it is. */
export function functionFirst(name: string): string {
  const frame = FRAME.exec(name);
  if (frame) return `${frame[3] ?? ""}  ${frame[1] ?? ""}:${frame[2] ?? ""}`;
  return name.startsWith(MODULE) ? `${name.slice(MODULE.length)}  nn.Module` : name;
}
