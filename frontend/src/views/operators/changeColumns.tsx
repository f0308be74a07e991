import { time } from "../../base/format";
import { rowName, type RowChange, type TableChange } from "../../state/baseTables";
import { countText } from "../../state/comparison";
import { deltaOf } from "../../state/delta";
import type { KernelRow, OperatorRow } from "../../wire/report";
import { DeltaText } from "../base/DeltaText";
import type { Column } from "../parts/DataTable";

type Row = OperatorRow | KernelRow;

interface Wanted {
  readonly id: string;
  readonly title: string;
  readonly about: string;
  readonly now: (change: RowChange) => number;
  readonly base: (change: RowChange) => number;
  readonly text: (value: number) => string;
}

const CALLS: Wanted = {
  id: "change_calls",
  title: "± Calls per step",
  about: "Calls per step, this recording minus the base",
  now: ({ calls }) => calls,
  base: ({ base_calls }) => base_calls,
  text: countText,
};

const HOST: Wanted = {
  id: "change_host",
  title: "± Host per step",
  about: "Host self time per step, this recording minus the base",
  now: ({ host_us }) => host_us,
  base: ({ base_host_us }) => base_host_us,
  text: time,
};

const GPU: Wanted = {
  id: "change_gpu",
  title: "± GPU per step",
  about: "GPU self time per step, this recording minus the base",
  now: ({ gpu_us }) => gpu_us,
  base: ({ base_gpu_us }) => base_gpu_us,
  text: time,
};

function column<T extends Row>(
  { id, title, about, now, base, text }: Wanted,
  table: TableChange,
  nameOf: (row: T) => string,
): Column<T> {
  return {
    id,
    title,
    ...(text === time ? { unit: "µs" as const } : {}),
    about,
    width: 150,
    figures: true,
    value: (row) => {
      const change = table.rows.get(nameOf(row));
      return change ? now(change) - base(change) : NaN;
    },
    cell: (row) => {
      const change = table.rows.get(nameOf(row));
      if (!change) return "";
      const was = change.was && ` (${change.was})`;
      return (
        <DeltaText
          delta={deltaOf(now(change), base(change), text)}
          base={`${text(base(change))} per step${was}`}
        />
      );
    },
  };
}

export function operatorChanges(table: TableChange, hasGpu: boolean): readonly Column<OperatorRow>[] {
  return [CALLS, HOST, ...(hasGpu ? [GPU] : [])].map((wanted) => column<OperatorRow>(wanted, table, rowName));
}

export function kernelChanges(table: TableChange, group: string): readonly Column<KernelRow>[] {
  const nameOf = group === "kernel" ? ({ name }: KernelRow) => name : rowName;
  return [
    CALLS,
    { ...GPU, title: "± Time per step", about: "Time per step, this recording minus the base" },
  ].map((wanted) => column<KernelRow>(wanted, table, nameOf));
}
