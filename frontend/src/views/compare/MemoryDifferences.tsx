import { bytes } from "../../base/format";
import { word } from "../../base/terms";
import { MEMORY_FIGURES } from "../../base/vocabulary";
import { signedBytes } from "../../state/comparison";
import type { MemoryDifference } from "../../wire/report";
import { Section } from "../parts/Section";
import { ShortTable, type ShortColumn } from "../parts/ShortTable";

const COLUMNS: readonly ShortColumn<MemoryDifference>[] = [
  { title: "Device", heads: true, cell: ({ device }) => device },
  { title: "What", cell: ({ what }) => word(MEMORY_FIGURES, what) },
  { title: "Base", className: "gd-number", cell: ({ base_bytes }) => bytes(base_bytes) },
  { title: "Candidate", className: "gd-number", cell: ({ candidate_bytes }) => bytes(candidate_bytes) },
  {
    title: "Difference",
    className: "gd-number",
    cell: ({ base_bytes, candidate_bytes }) => signedBytes(candidate_bytes - base_bytes),
  },
];

export function MemoryDifferences({ items }: { items: readonly MemoryDifference[] }) {
  if (items.length === 0) return null;
  return (
    <Section title="Memory">
      <ShortTable className="gd-plain" columns={COLUMNS} rows={items} box="Memory" />
    </Section>
  );
}
