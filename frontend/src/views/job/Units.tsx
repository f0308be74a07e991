import { useState } from "react";
import { bytes, count, time } from "../../base/format";
import type { Order } from "../../base/sorting";
import { EXPOSURE_REASONS } from "../../base/vocabulary";
import type { JobReport, JobUnit } from "../../wire/report";
import { DataTable, type Column } from "../parts/DataTable";
import { Section } from "../parts/Section";

function unitName({ parallelism, unit }: JobUnit): string {
  return [parallelism, unit].filter(Boolean).join(" · ");
}

function timeColumn(
  id: string,
  title: string,
  about: string,
  value: (row: JobUnit) => number,
): Column<JobUnit> {
  return { id, title, about, unit: "µs", width: 92, figures: true, value, cell: (row) => time(value(row)) };
}

const COLUMNS: readonly Column<JobUnit>[] = [
  {
    id: "unit",
    title: "Collective",
    value: (row) => `${row.kind} ${unitName(row)}`,
    cell: (row) => (
      <span title={unitName(row)}>
        <b>{row.kind}</b> <span className="gd-muted">{unitName(row)}</span>
      </span>
    ),
  },
  {
    id: "collectives",
    title: "Count",
    width: 70,
    figures: true,
    value: ({ collectives }) => collectives,
    cell: ({ collectives }) => count(collectives),
  },
  {
    id: "bytes",
    title: "Size",
    unit: "bytes",
    width: 84,
    figures: true,
    value: (row) => row.bytes || NaN,
    cell: (row) => (row.bytes > 0 ? bytes(row.bytes) : ""),
  },
  timeColumn(
    "skew",
    "Waiting",
    "Time between the arrivals of the first and the last rank",
    (row) => row.skew_us,
  ),
  timeColumn("transfer", "Transfer", "Time after the last rank has arrived", (row) => row.transfer_us),
  timeColumn(
    "exposed",
    "Exposed",
    "Nothing computed meanwhile, mean over the ranks",
    (row) => row.exposed_us,
  ),
  {
    id: "last",
    title: "Last rank",
    about: "The rank that was last most often",
    width: 92,
    figures: true,
    value: ({ last_rank }) => last_rank,
    cell: ({ last_rank, last_in, collectives }) => (
      <span title={`Last in ${count(last_in)} of ${count(collectives)}`}>{count(last_rank)}</span>
    ),
  },
  {
    id: "why",
    title: "Why it is exposed",
    value: ({ why }) => EXPOSURE_REASONS[why].word,
    cell: ({ why }) => <span title={EXPOSURE_REASONS[why].explanation}>{EXPOSURE_REASONS[why].word}</span>,
  },
];

/** Collectives of all ranks by layer, unit of FSDP or bucket: waiting for one another against transferring. */
export function Units({ job: { units } }: { job: JobReport }) {
  const [order, setOrder] = useState<Order>({ by: "exposed", descending: true });
  if (units.length === 0) return null;
  return (
    <Section title="Collectives by layer, unit or bucket">
      <DataTable
        label="Units"
        columns={COLUMNS}
        rows={units}
        rowKey={({ kind, parallelism, unit }) => `${kind}/${parallelism}/${unit}`}
        order={order}
        onOrder={setOrder}
        maxHeight="380px"
        minWidth={900}
      />
    </Section>
  );
}
