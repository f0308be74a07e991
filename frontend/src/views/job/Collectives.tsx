import { useState } from "react";
import { partLabel } from "../../base/causes";
import { bytes, codePlace, count, time } from "../../base/format";
import type { Order } from "../../base/sorting";
import type { JobCollective, JobReport } from "../../wire/report";
import { DataTable, type Column } from "../parts/DataTable";
import { Section } from "../parts/Section";

function waiting_us({ waiting_us: by }: JobCollective): number {
  return Object.values(by).reduce((sum, us) => sum + us, 0);
}

function why({ why: name, why_us, place }: JobCollective): string {
  const where = place ? codePlace(place) : "";
  const text = name ? `${partLabel(name)}${why_us > 0 ? `, ${time(why_us)}` : ""}` : "";
  return [text, where].filter(Boolean).join(" at ");
}

const COLUMNS: readonly Column<JobCollective>[] = [
  {
    id: "name",
    title: "Collective",
    value: ({ annotation, name, kind }) => annotation || name || kind,
    cell: ({ annotation, name, kind, group }) => (
      <span title={[name, annotation, group && `group ${group}`].filter(Boolean).join("\n")}>
        <b>{kind || name}</b> <span className="gd-muted">{annotation || (group && `group ${group}`)}</span>
      </span>
    ),
  },
  {
    id: "index",
    title: "No.",
    about: "In time order",
    width: 62,
    figures: true,
    value: ({ index }) => index,
    cell: ({ index }) => count(index),
  },
  {
    id: "bytes",
    title: "Size",
    unit: "bytes",
    width: 84,
    figures: true,
    value: (item) => item.bytes || NaN,
    cell: (item) => (item.bytes > 0 ? bytes(item.bytes) : ""),
  },
  {
    id: "skew",
    title: "Skew",
    unit: "µs",
    about: "Time between the arrivals of the first and the last rank",
    width: 84,
    figures: true,
    value: ({ skew_us }) => skew_us,
    cell: ({ skew_us }) => time(skew_us),
  },
  {
    id: "transfer",
    title: "Transfer",
    unit: "µs",
    about: "Time after the last rank has arrived",
    width: 84,
    figures: true,
    value: ({ transfer_us }) => transfer_us,
    cell: ({ transfer_us }) => time(transfer_us),
  },
  {
    id: "waiting",
    title: "Waiting, all ranks",
    unit: "µs",
    about: "Summed over ranks",
    width: 124,
    figures: true,
    value: waiting_us,
    cell: (item) => <span title={byRank(item)}>{time(waiting_us(item))}</span>,
  },
  {
    id: "last",
    title: "Last rank",
    width: 78,
    figures: true,
    value: ({ last_rank }) => last_rank,
    cell: ({ last_rank }) => count(last_rank),
  },
  {
    id: "first",
    title: "First rank",
    width: 78,
    figures: true,
    value: ({ first_rank }) => first_rank,
    cell: ({ first_rank }) => count(first_rank),
  },
  {
    id: "why",
    title: "Why the last rank is late",
    about: "What the last rank spent more time on than the others since the previous collective",
    value: why,
    cell: (item) => <span title={why(item)}>{why(item)}</span>,
  },
];

function byRank({ waiting_us: by }: JobCollective): string {
  return Object.entries(by)
    .slice(0, 32)
    .map(([rank, us]) => `Rank ${rank}: ${time(us)}`)
    .join("\n");
}

/** The collectives in which ranks wait longest for one another. */
export function Collectives({ job: { collectives } }: { job: JobReport }) {
  const [order, setOrder] = useState<Order>({ by: "waiting", descending: true });
  const worst = collectives?.worst ?? [];
  if (worst.length === 0) return null;
  return (
    <Section title="Collectives with the most waiting">
      <DataTable
        label="Collectives"
        columns={COLUMNS}
        rows={worst}
        rowKey={({ index, group }) => `${group}/${index}`}
        order={order}
        onOrder={setOrder}
        maxHeight="380px"
        minWidth={900}
      />
    </Section>
  );
}
