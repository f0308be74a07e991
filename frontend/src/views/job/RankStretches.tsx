import { useMemo, useState } from "react";
import { time } from "../../base/format";
import type { Order } from "../../base/sorting";
import { collectivesIn, type Lane, type LaneCollective, type Stretch } from "../../canvas/rankLanes";
import { DataTable, type Column } from "../parts/DataTable";
import { AsTable } from "./AsTable";
import { rankOrder } from "./rankName";
import { kindText, laneName, partsText } from "./stretchText";

interface Row {
  readonly key: string;
  readonly lane: Lane;
  readonly stretch: Stretch;
  readonly own: LaneCollective | null;
}

function figure(id: string, title: string, about: string, of: (row: Row) => number): Column<Row> {
  return {
    ...{ id, title, about, width: 96, unit: "µs", figures: true, value: of },
    cell: (row) => (Number.isNaN(of(row)) ? "" : time(of(row))),
  };
}

const COLUMNS: readonly Column<Row>[] = [
  {
    id: "rank",
    title: "Rank",
    width: 84,
    value: ({ lane }) => rankOrder(lane.rank),
    cell: ({ lane }) => laneName(lane),
  },
  figure("start", "Start", "From the start of the first recording", ({ stretch }) => stretch.start_us),
  figure("length", "Duration", "Length of the stretch", ({ stretch }) => stretch.end_us - stretch.start_us),
  {
    id: "parts",
    title: "What the rank does",
    value: ({ stretch }) => partsText(stretch),
    cell: ({ stretch }) => <span title={partsText(stretch)}>{partsText(stretch)}</span>,
  },
  {
    id: "collective",
    title: "Collective",
    about: "The collective that begins in this stretch",
    width: 130,
    value: ({ own }) => (own ? kindText(own) : ""),
    cell: ({ own }) => own && kindText(own),
  },
  figure(
    "waits",
    "Waiting",
    "Time spent waiting for ranks that arrive later",
    ({ own }) => own?.waiting_us ?? NaN,
  ),
  figure(
    "transfers",
    "Transfer",
    "Time after the last rank has arrived",
    ({ own }) => own?.transfer_us ?? NaN,
  ),
  figure(
    "waited",
    "Waited for",
    "Total time that the other ranks wait because this rank is last",
    ({ own }) => own?.waited_for_us ?? NaN,
  ),
];

/** The stretches of all lanes as a table. */
export function RankStretches({ lanes }: { lanes: readonly Lane[] }) {
  return (
    <AsTable>
      <Table lanes={lanes} />
    </AsTable>
  );
}

function Table({ lanes }: { lanes: readonly Lane[] }) {
  const [order, setOrder] = useState<Order>({ by: "rank", descending: false });
  const rows = useMemo(
    () =>
      lanes.flatMap((lane) =>
        lane.stretches.map((stretch, at) => ({
          ...{ key: `${lane.rank.id}/${at}`, lane, stretch, own: collectivesIn(lane, stretch) },
        })),
      ),
    [lanes],
  );
  return (
    <DataTable
      label="Stretches by rank"
      columns={COLUMNS}
      rows={rows}
      rowKey={({ key }) => key}
      order={order}
      onOrder={setOrder}
      maxHeight="420px"
      minWidth={960}
    />
  );
}
