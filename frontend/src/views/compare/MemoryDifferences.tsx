import { bytes, movedPlace } from "../../base/format";
import { word } from "../../base/terms";
import { MEMORY_FIGURES, MEMORY_KINDS } from "../../base/vocabulary";
import { signedBytes } from "../../state/comparison";
import type { HeldDifference, MemoryDifference } from "../../wire/report";
import { Section } from "../parts/Section";
import { ShortTable, type ShortColumn } from "../parts/ShortTable";

type Sides = Pick<MemoryDifference, "base_bytes" | "candidate_bytes">;

const SIDES: readonly ShortColumn<Sides>[] = [
  { title: "Base", className: "gd-number", cell: ({ base_bytes }) => bytes(base_bytes) },
  { title: "Candidate", className: "gd-number", cell: ({ candidate_bytes }) => bytes(candidate_bytes) },
  {
    title: "Difference",
    className: "gd-number",
    cell: ({ base_bytes, candidate_bytes }) => signedBytes(candidate_bytes - base_bytes),
  },
];

const FIGURES: readonly ShortColumn<MemoryDifference>[] = [
  { title: "Device", heads: true, cell: ({ device }) => device },
  { title: "What", cell: ({ what }) => word(MEMORY_FIGURES, what) },
  ...SIDES,
];

const HELD: readonly ShortColumn<HeldDifference>[] = [
  { title: "Device", heads: true, cell: ({ device }) => device },
  { title: "Kind", cell: ({ kind }) => word(MEMORY_KINDS, kind) },
  ...SIDES,
  {
    title: "Allocated by",
    cell: ({ allocator, place, base_place }) =>
      [allocator, place && movedPlace(place, base_place)].filter(Boolean).join(" at ") || "(other)",
  },
];

interface Props {
  readonly figures: readonly MemoryDifference[];
  readonly held: readonly HeldDifference[];
}

export function MemoryDifferences({ figures, held }: Props) {
  if (figures.length === 0) return null;
  return (
    <>
      <Section title="Memory">
        <ShortTable className="gd-plain" columns={FIGURES} rows={figures} box="Memory" />
      </Section>
      {held.length > 0 && (
        <Section title="Memory at the peak that changed most">
          <ShortTable className="gd-plain" columns={HELD} rows={held} box="Memory at the peak" />
        </Section>
      )}
    </>
  );
}
