import { bytes, count, percent } from "../../base/format";
import type { DeviceMemory, MemorySegment } from "../../wire/report";
import { ShortTable, type ShortColumn } from "../parts/ShortTable";

const FIRST = 6;

const SEGMENTS: readonly ShortColumn<MemorySegment>[] = [
  {
    title: "Address",
    cell: ({ address, expandable }) => (
      <>
        <code>{address}</code>
        {expandable && <span className="gd-muted"> expandable</span>}
      </>
    ),
  },
  { title: "Size", className: "gd-number", cell: (segment) => bytes(segment.bytes) },
  {
    title: "Used",
    className: "gd-number",
    tip: ({ used_bytes }) => bytes(used_bytes),
    cell: (segment) => percent(segment.used_bytes, segment.bytes),
  },
  { figure: "largest_free", cell: ({ largest_free_bytes }) => bytes(largest_free_bytes) },
  { title: "Blocks", className: "gd-number", cell: ({ blocks }) => count(blocks) },
];

/** The segments of a memory snapshot, which the driver allocates as one piece each, and how much of each is used. */
export function Segments({ memory: { segments } }: { memory: DeviceMemory }) {
  if (segments.length === 0) return null;
  return (
    <section aria-label="Segments">
      <h3>Segments</h3>
      <ShortTable className="gd-table gd-memory-sites" columns={SEGMENTS} rows={segments} first={FIRST} />
    </section>
  );
}
