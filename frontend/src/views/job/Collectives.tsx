import { useState } from "react";
import { partLabel } from "../../base/causes";
import { bytes, codePlace, count, time } from "../../base/format";
import type { Order } from "../../base/sorting";
import type { JobCollective, JobReport } from "../../wire/report";
import { DataTable, type Column } from "../parts/DataTable";
import { figure } from "../parts/figure";
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
  figure("index", "No.", 62, ({ index }) => index, count, "In time order"),
  figure("bytes", "Size", 84, (item) => item.bytes || NaN, bytes),
  figure(
    "skew",
    "Skew",
    84,
    ({ skew_us }) => skew_us,
    time,
    "Time between the arrivals of the first and the last rank",
  ),
  figure(
    "transfer",
    "Transfer",
    84,
    ({ transfer_us }) => transfer_us,
    time,
    "Time after the last rank has arrived",
  ),
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
  figure("last", "Last rank", 78, ({ last_rank }) => last_rank, count),
  figure("first", "First rank", 78, ({ first_rank }) => first_rank, count),
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
