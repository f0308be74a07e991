import { moment } from "../../base/format";
import { fileParts } from "../../wire/client";
import type { FilePart } from "../../wire/file/events";

type Words = readonly [what: string, part: FilePart | null];

/** A hundredth of a millisecond is enough to find the place. */
const STEP_US = 10;

function outside([what, part]: Words): string {
  if (part === null) return "";
  if (part.end_us <= part.start_us) return what;
  const before = part.start_us >= 0 ? `before ${moment(part.start_us, STEP_US)} and ` : "";
  return `${what} ${before}after ${moment(part.end_us, STEP_US)}`;
}

/** Names the timeline events that this file lacks. Shows nothing on a page with a server. */
export function NotInFile() {
  const parts = fileParts();
  if (!parts) return null;
  const words: readonly Words[] = [
    ["GPU work and idle time", parts.gpu],
    ["host events", parts.host],
  ];
  const missing = words.map(outside).filter((text) => text !== "");
  if (missing.length === 0) return null;
  return (
    <p className="gd-muted">
      Not in this file: {missing.join(", ")}. Open the trace in TensorBoard, or with{" "}
      <code>gpudiag serve</code>.
    </p>
  );
}
