import { SegmentedControl } from "@mantine/core";
import { useMemo, useState } from "react";
import { cause, partLabel } from "../../base/causes";
import { percent, time } from "../../base/format";
import type { Order } from "../../base/sorting";
import { causeShares, stepWaiting, type Matrix } from "../../state/job";
import { usePage } from "../../state/store";
import type { JobRank, JobReport } from "../../wire/report";
import { DataTable, type Column } from "../parts/DataTable";
import { HeatMap, type Cell } from "../parts/HeatMap";
import { Section } from "../parts/Section";
import { AsTable } from "./AsTable";
import { rankName, rankOrder } from "./rankName";

interface MapProps {
  readonly job: JobReport;
  readonly onPick: (row: number) => void;
}

/** Ranks by cause, and ranks by step. */
export function JobHeat({ job }: { job: JobReport }) {
  const openTab = usePage((page) => page.openTab);
  const [chosen, setChosen] = useState("causes");
  const several = job.steps.length > 0;
  const onPick = (row: number) => {
    const rank = job.ranks[row];
    if (rank) openTab("summary", rank.id);
  };
  const steps = several && chosen === "steps";
  return (
    <Section
      title={steps ? "Waiting by rank and step" : "Time by rank and cause"}
      aside={
        several && (
          <SegmentedControl
            size="xs"
            aria-label="Columns of the map"
            data={[
              { value: "causes", label: "Causes" },
              { value: "steps", label: "Steps" },
            ]}
            value={chosen}
            onChange={setChosen}
          />
        )
      }
    >
      {steps ? <StepMap job={job} onPick={onPick} /> : <CauseMap job={job} onPick={onPick} />}
    </Section>
  );
}

function CauseMap({ job: { ranks }, onPick }: MapProps) {
  const scheme = usePage((page) => page.scheme);
  const shares = useMemo(() => causeShares(ranks), [ranks]);
  const names = shares.columns.map(partLabel);
  const at = ({ row, column }: Cell) => shares.values[row]?.[column] ?? 0;
  return (
    <>
      <HeatMap
        label="Share of the step window by rank and cause"
        rows={ranks.map(rankName)}
        columns={names}
        strength={at}
        color={(column) => cause(shares.columns[column] ?? "").color[scheme]}
        text={(cell) =>
          `Rank ${named(ranks, cell.row)}, ${names[cell.column] ?? ""}: ${percent(at(cell))} of its step window, ${time(at(cell) * (ranks[cell.row]?.window_us ?? 0))}`
        }
        onPick={onPick}
      />
      <Table
        label="Time by rank and cause"
        ranks={ranks}
        matrix={{ ...shares, columns: names }}
        text={percent}
      />
    </>
  );
}

function StepMap({ job: { ranks, steps }, onPick }: MapProps) {
  const scheme = usePage((page) => page.scheme);
  const waiting = useMemo(() => stepWaiting(ranks, steps), [ranks, steps]);
  const names = steps.map(({ name }) => name.replace(/^ProfilerStep#/, ""));
  const at = ({ row, column }: Cell) => waiting.values[row]?.[column] ?? 0;
  const duration = ({ row, column }: Cell) => steps[column]?.rank_us[row] ?? 0;
  const isLast = ({ row, column }: Cell) => steps[column]?.last_rank === ranks[row]?.rank;
  return (
    <>
      <HeatMap
        label="Share of each step that a rank spends waiting for others"
        rows={ranks.map(rankName)}
        columns={names}
        strength={(cell) => at(cell) / duration(cell)}
        color={() => cause("communicating").color[scheme]}
        marked={isLast}
        text={(cell) =>
          `Rank ${named(ranks, cell.row)}, step ${names[cell.column] ?? ""}: waits ${time(at(cell))} of ${time(duration(cell))}${isLast(cell) ? ", the last rank of this step" : ""}`
        }
        onPick={onPick}
      />
      <p className="gd-nothing">A dot marks the last rank of a step: the others wait for that rank.</p>
      <Table
        label="Waiting by rank and step"
        ranks={ranks}
        matrix={{ ...waiting, columns: names }}
        text={time}
      />
    </>
  );
}

function named(ranks: readonly JobRank[], row: number): string {
  const rank = ranks[row];
  return rank ? rankName(rank) : "";
}

interface TableProps {
  readonly label: string;
  readonly ranks: readonly JobRank[];
  readonly matrix: Matrix;
  readonly text: (value: number) => string;
}

/** The figures of a map as a table. */
function Table({ label, ranks, matrix, text }: TableProps) {
  const [order, setOrder] = useState<Order>({ by: "rank", descending: false });
  const rows = ranks.map((rank, at) => ({ rank, values: matrix.values[at] ?? [] }));
  type Row = (typeof rows)[number];
  const columns: Column<Row>[] = [
    {
      id: "rank",
      title: "Rank",
      width: 90,
      value: ({ rank }) => rankOrder(rank),
      cell: ({ rank }) => rankName(rank),
    },
    ...matrix.columns.map((name, at) => ({
      id: `column-${at}`,
      title: name,
      about: name,
      width: 110,
      figures: true,
      value: ({ values }: Row) => values[at] ?? NaN,
      cell: ({ values }: Row) => text(values[at] ?? 0),
    })),
  ];
  return (
    <AsTable>
      <DataTable
        label={label}
        columns={columns}
        rows={rows}
        rowKey={({ rank }) => rank.id}
        order={order}
        onOrder={setOrder}
        maxHeight="420px"
        minWidth={90 + 110 * matrix.columns.length}
      />
    </AsTable>
  );
}
