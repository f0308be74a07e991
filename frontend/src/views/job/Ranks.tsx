import { useState } from "react";
import { count, exactTime, percent, plural, time } from "../../base/format";
import { limiterWord } from "../../base/limiters";
import type { Order } from "../../base/sorting";
import type { BaseJob } from "../../state/baseJob";
import { deltaOf } from "../../state/delta";
import { accountParts } from "../../state/account";
import { usePage } from "../../state/store";
import type { JobRank, JobReport } from "../../wire/report";
import { DeltaText } from "../base/DeltaText";
import { Bar } from "../parts/Bar";
import { DataTable, type Column } from "../parts/DataTable";
import { figure } from "../parts/figure";
import { Section } from "../parts/Section";
import { rankName, rankOrder } from "./rankName";

/** A share of the rank's own step window. */
function share(id: string, title: string, about: string, us: (rank: JobRank) => number): Column<JobRank> {
  return {
    id,
    title,
    unit: "share",
    about,
    width: 88,
    figures: true,
    value: (rank) => us(rank) / rank.window_us,
    cell: (rank) => <span title={time(us(rank))}>{percent(us(rank), rank.window_us)}</span>,
  };
}

const COLUMNS: readonly Column<JobRank>[] = [
  {
    id: "rank",
    title: "Rank",
    width: 84,
    value: rankOrder,
    cell: (rank) => <b title={rank.worker}>{rankName(rank)}</b>,
  },
  {
    id: "host",
    title: "Host",
    value: ({ host }) => host,
    cell: ({ host, clock_offset_us }) => (
      <span title={clock_offset_us === 0 ? host : `${host}, clock shifted by ${exactTime(clock_offset_us)}`}>
        {host}
      </span>
    ),
  },
  figure("step", "Step", 86, ({ step_us }) => step_us || NaN, time, "Median step time"),
  share("busy", "GPU busy", "Share of the step window", ({ busy_us }) => busy_us),
  share(
    "waiting",
    "Waiting",
    "Waiting in collectives for ranks that arrive later: share of the step window. The latest rank waits least.",
    ({ waiting_us }) => waiting_us,
  ),
  share(
    "transfer",
    "Transfer",
    "In collectives, after the last rank has arrived: share of the step window",
    ({ transfer_us }) => transfer_us,
  ),
  share(
    "exposed",
    "Exposed",
    "Exposed communication: share of the step window",
    ({ exposed_communication_us }) => exposed_communication_us,
  ),
  figure(
    "last",
    "Last in",
    78,
    ({ last_in }) => last_in,
    count,
    "Collectives that this rank reaches last, with the first one, which a rank that begins to record late reaches last",
  ),
  {
    id: "account",
    title: "Where time goes",
    about: "The step window by cause. Sorts by the share of computing.",
    width: 170,
    value: ({ computing_us, window_us }) => computing_us / window_us,
    cell: (rank) => <Bar parts={accountParts(rank)} whole_us={rank.window_us} label={`Rank ${rank.rank}`} />,
  },
  {
    id: "limiter",
    title: "Bottleneck, first finding",
    about: "According to this rank's own report",
    value: ({ limiter, device_name }) => limiterWord(limiter, device_name !== ""),
    cell: ({ limiter, device_name, findings }) => (
      <span title={findings.map(({ title }) => title).join("\n")}>
        {limiterWord(limiter, device_name !== "")} <span className="gd-muted">{findings[0]?.title}</span>
      </span>
    ),
  },
];

/** The step of each rank against the same rank of the base. */
function fromBase({ ranks }: BaseJob): Column<JobRank> {
  const of = ({ rank }: JobRank) => ranks.get(rank)?.step_us ?? 0;
  return {
    id: "base",
    title: "Step vs. base",
    unit: "µs",
    about: "Median step time minus that of the same rank in the base",
    width: 150,
    figures: true,
    value: (rank) => (rank.step_us > 0 && of(rank) > 0 ? rank.step_us - of(rank) : NaN),
    cell: (rank) =>
      rank.step_us > 0 &&
      of(rank) > 0 && <DeltaText delta={deltaOf(rank.step_us, of(rank), time)} base={time(of(rank))} />,
  };
}

/** One row per rank. A click opens the rank's own report. */
export function Ranks({ job: { ranks }, base }: { job: JobReport; base: BaseJob | null }) {
  const openTab = usePage((page) => page.openTab);
  const [order, setOrder] = useState<Order>({ by: "waiting", descending: false });
  const empty = [
    ...(ranks.some(({ host }) => host !== "") ? [] : ["host"]),
    ...(ranks.some(({ busy_us }) => busy_us > 0) ? [] : ["busy"]),
  ];
  const shown = COLUMNS.filter(({ id }) => !empty.includes(id));
  const extra = base && base.ranks.size > 0 ? [fromBase(base)] : [];
  return (
    <Section
      title="Ranks"
      aside={
        <span className="gd-muted">
          {plural(ranks.length, "rank")}, the latest first; click one to open its report. {base?.problem}
        </span>
      }
    >
      <DataTable
        label="Ranks"
        columns={shown.flatMap((column) => (column.id === "step" ? [column, ...extra] : [column]))}
        rows={ranks}
        rowKey={({ id }) => id}
        order={order}
        onOrder={setOrder}
        maxHeight="330px"
        minWidth={extra.length > 0 ? 1190 : 1060}
        onOpen={({ id }) => openTab("summary", id)}
      />
    </Section>
  );
}
