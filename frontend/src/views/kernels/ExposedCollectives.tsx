import { bytes, count, time } from "../../base/format";
import { EXPOSURE_REASONS } from "../../base/vocabulary";
import type { ExposedCollectives as Row, Report } from "../../wire/report";
import { Section } from "../parts/Section";
import { ShortTable, type ShortColumn } from "../parts/ShortTable";

const FIRST = 10;

const COLUMNS: readonly ShortColumn<Row>[] = [
  {
    title: "Collective",
    className: "gd-name",
    tip: unitOf,
    cell: (row) => (
      <>
        <b>{row.kind.replaceAll("_", "-")}</b> <span className="gd-muted">{unitOf(row)}</span>
      </>
    ),
  },
  { figure: "collective_calls", cell: ({ calls }) => count(calls) },
  { figure: "message_size", cell: (row) => (row.bytes > 0 ? bytes(row.bytes) : "") },
  { figure: "collective_time", cell: ({ us }) => time(us) },
  { figure: "exposed_time", cell: ({ exposed_us }) => time(exposed_us) },
  {
    title: "Why it is exposed",
    className: "gd-name",
    tip: ({ why, late_in }) => [EXPOSURE_REASONS[why].explanation, late_in].filter(Boolean).join("\n"),
    cell: ({ why, late_in }) => [EXPOSURE_REASONS[why].word, late_in].filter(Boolean).join(": "),
  },
];

/** Collectives by the unit of the model that they are for, and why nothing computes beside them. */
export function ExposedCollectives({ report: { collectives } }: { report: Report }) {
  if (collectives.length === 0) return null;
  return (
    <Section
      title="Collectives"
      aside={<span className="gd-muted">exposed: nothing computes meanwhile</span>}
    >
      <ShortTable
        className="gd-table gd-launches"
        columns={COLUMNS}
        rows={collectives}
        first={FIRST}
        linked
      />
    </Section>
  );
}

function unitOf({ parallelism, unit }: Row): string {
  return [parallelism, unit].filter(Boolean).join(" · ");
}
