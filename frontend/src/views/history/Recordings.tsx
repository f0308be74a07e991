import { useState } from "react";
import { bytes, count, date, percent, plural, time } from "../../base/format";
import { limiterWord } from "../../base/limiters";
import type { Order } from "../../base/sorting";
import { partsOf } from "../../state/runs";
import type { HistoryPoint } from "../../wire/report";
import { Bar } from "../parts/Bar";
import type { Unit } from "../../base/csv";
import { DataTable, type Column } from "../parts/DataTable";
import { Section } from "../parts/Section";

interface Row {
  readonly point: HistoryPoint;
  readonly at: number;
}

function figure(
  id: string,
  title: string,
  of: (point: HistoryPoint) => number,
  text: (value: number) => string,
  unit?: Unit,
): Column<Row> {
  return {
    id,
    title,
    ...(unit === undefined ? {} : { unit }),
    width: 96,
    figures: true,
    value: ({ point }) => of(point) || NaN,
    cell: ({ point }) => (of(point) > 0 ? text(of(point)) : ""),
  };
}

const COLUMNS: readonly Column<Row>[] = [
  {
    id: "time",
    title: "Recorded",
    unit: "date",
    width: 160,
    value: ({ point }) => point.time_s,
    cell: ({ point }) => date(point.time_s),
  },
  figure("step", "Step", ({ step_us }) => step_us, time, "µs"),
  figure("low", "Lower quartile", ({ low_step_us }) => low_step_us, time, "µs"),
  figure("high", "Upper quartile", ({ high_step_us }) => high_step_us, time, "µs"),
  figure("steps", "Steps", ({ steps }) => steps, count),
  figure("busy", "GPU busy", ({ busy_share }) => busy_share, percent, "share"),
  figure("floor", "Memory floor", ({ floor_bytes }) => floor_bytes, bytes, "bytes"),
  figure("peak", "Memory peak", ({ peak_bytes }) => peak_bytes, bytes, "bytes"),
  {
    id: "causes",
    title: "Step by cause",
    width: 140,
    value: ({ point }) => point.shares.reduce((sum, { us }) => sum + us, 0),
    cell: ({ point }) =>
      point.shares.length > 0 && (
        <Bar
          parts={partsOf(point.shares)}
          whole_us={point.shares.reduce((sum, { us }) => sum + us, 0)}
          label={date(point.time_s)}
        />
      ),
  },
  {
    id: "finding",
    title: "Bottleneck, first finding",
    value: ({ point }) => limiterWord(point.limiter, point.device_name !== ""),
    cell: ({ point }) => (
      <span title={point.title}>
        {limiterWord(point.limiter, point.device_name !== "")} <span className="gd-muted">{point.title}</span>
      </span>
    ),
  },
];

interface Props {
  readonly points: readonly HistoryPoint[];
  readonly onOpen: (point: number) => void;
}

/** The recordings as a table: the figures of the curves. */
export function Recordings({ points, onOpen }: Props) {
  const [order, setOrder] = useState<Order>({ by: "time", descending: true });
  const rows = points.map((point, at) => ({ point, at }));
  return (
    <Section
      title="Recordings"
      aside={<span className="gd-muted">{plural(points.length, "recording")}</span>}
    >
      <DataTable
        label="Recordings"
        columns={COLUMNS}
        rows={rows}
        rowKey={({ point }) => point.id}
        order={order}
        onOrder={setOrder}
        maxHeight="420px"
        minWidth={1160}
        onOpen={({ at }) => onOpen(at)}
      />
    </Section>
  );
}
