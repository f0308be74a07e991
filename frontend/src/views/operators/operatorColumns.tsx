import { withoutArguments } from "../../base/names";
import { Cut } from "../parts/Cut";
import { count, figures, percent, time } from "../../base/format";
import { FAMILIES } from "../../base/vocabulary";
import type { KernelRow, OperatorRow, OperatorTable } from "../../wire/report";
import type { Column } from "../parts/DataTable";
import { figure } from "../parts/figure";
import { shapesText } from "./names";

function us<T>(id: string, title: string, about: string, value: (row: T) => number): Column<T> {
  return {
    id,
    title,
    unit: "µs",
    about,
    width: 94,
    figures: true,
    value,
    cell: (row) => (value(row) > 0 ? time(value(row)) : ""),
  };
}

function rate<T extends { teraflops: number; terabytes: number }>(): readonly Column<T>[] {
  return [
    figure(
      "teraflops",
      "TFLOP/s",
      78,
      ({ teraflops }) => teraflops || NaN,
      figures,
      "For operators whose input shapes were recorded",
    ),
    figure(
      "gigabytes",
      "GB/s",
      78,
      ({ terabytes }) => (terabytes > 0 ? terabytes * 1e3 : NaN),
      count,
      "For operators whose input shapes were recorded, as if each input were read once and each result written once",
    ),
  ];
}

const NAMES: Readonly<Record<string, string>> = {
  operator: "Operator",
  range: "Range",
  call: "Call",
  python: "Function",
};

function Name({ row }: { row: OperatorRow }) {
  const [first, ...others] = row.stack;
  const second = row.shapes ? shapesText(row.shapes) : first;
  const title = [row.name, row.shapes, first ?? "", ...others].filter((text) => text !== "").join("\n");
  return (
    <span className="gd-two" title={title}>
      <b>{row.name}</b>
      {second && <span>{second}</span>}
    </span>
  );
}

export function operatorColumns(table: OperatorTable): readonly Column<OperatorRow>[] {
  const module = table.group === "module";
  const all = table.all?.gpu_self_us ?? 0;
  const detail: Column<OperatorRow>[] = [];
  if (table.group === "shapes") {
    detail.push({
      id: "shapes",
      title: "Input shapes",
      saved: true,
      value: ({ shapes }) => shapes,
      cell: () => null,
    });
  }
  if (table.group === "stack") {
    detail.push({
      id: "stack",
      title: "Stack",
      saved: true,
      value: ({ stack }) => stack.join(" < "),
      cell: () => null,
    });
  }
  const self = module ? "Operators in this module, excluding inner modules" : "Excluding the calls inside";
  const total = module ? "Operators in this module, including inner modules" : "Including the calls inside";
  return [
    {
      id: "name",
      title: module ? "Module" : (NAMES[table.kind] ?? "Name"),
      value: ({ name }) => name,
      cell: (row) => <Name row={row} />,
    },
    ...detail,
    figure("calls", "Calls", 76, ({ calls }) => calls, count),
    us("host_self", "Host self", self, (row) => row.host_self_us),
    us("host_total", "Host total", total, (row) => row.host_total_us),
    ...(table.has_gpu
      ? [
          us<OperatorRow>("gpu_self", "GPU self", "GPU work launched directly", (row) => row.gpu_self_us),
          {
            id: "gpu_share",
            title: "Share",
            unit: "share" as const,
            about: "Share of the GPU self time of all rows",
            width: 68,
            figures: true,
            value: (row: OperatorRow) => (all > 0 ? row.gpu_self_us / all : NaN),
            cell: (row: OperatorRow) => (row.gpu_self_us > 0 ? percent(row.gpu_self_us, all) : ""),
          },
          us<OperatorRow>(
            "gpu_total",
            "GPU total",
            "GPU work launched directly or by the calls inside",
            (row) => row.gpu_total_us,
          ),
          {
            id: "tensor",
            title: "Tensor cores",
            unit: "share" as const,
            about: "Share of the GPU self time in kernels that use tensor cores, judging by their names",
            width: 92,
            figures: true,
            value: (row: OperatorRow) => (row.gpu_self_us > 0 ? row.tensor_core_us / row.gpu_self_us : NaN),
            cell: (row: OperatorRow) =>
              row.tensor_core_us > 0 ? percent(row.tensor_core_us, row.gpu_self_us) : "",
          },
          ...rate<OperatorRow>(),
          figure(
            "reached",
            "Of the roofline",
            92,
            (row: OperatorRow) => row.reached || NaN,
            percent,
            "The least possible time at the GPU's stated peaks, as a share of the time. For operators whose input shapes were recorded",
          ),
        ]
      : []),
  ];
}

export function kernelColumns(): readonly Column<KernelRow>[] {
  return [
    {
      id: "name",
      title: "Kernel, copy or memset",
      value: ({ name }) => name,
      cell: (row) => (
        <span className="gd-two" title={row.name}>
          <b>
            <Cut text={withoutArguments(row.name)} />
          </b>
          <span>
            {row.operators.join(", ")}
            {row.more_operators > 0 && ` and ${count(row.more_operators)} more`}
          </span>
        </span>
      ),
    },
    {
      id: "operators",
      title: "Operators",
      saved: true,
      value: (row) => row.operators.join(", "),
      cell: () => null,
    },
    {
      id: "family",
      title: "Family",
      width: 104,
      value: ({ family }) => FAMILIES[family].word,
      cell: ({ family }) => FAMILIES[family].word,
    },
    figure("count", "Count", 72, (row) => row.count, count),
    us("total", "Total", "Sum of the durations", (row) => row.total_us),
    figure("share", "Share", 68, (row) => row.share, percent, "Share of the time of all GPU work"),
    us("mean", "Mean", "Mean duration", (row) => row.mean_us),
    us("min", "Shortest", "Shortest duration", (row) => row.min_us),
    us("max", "Longest", "Longest duration", (row) => row.max_us),
    {
      id: "tensor",
      title: "Tensor cores",
      unit: "share" as const,
      about: "Judging by the name",
      width: 92,
      value: (row) => row.arithmetic,
      cell: ({ arithmetic }) => (arithmetic === "tensor_cores" ? "yes" : ""),
    },
    figure(
      "blocks",
      "Blocks per SM",
      100,
      (row) => row.blocks_per_sm || NaN,
      figures,
      "Blocks in the grid divided by the number of multiprocessors; time-weighted mean",
    ),
    ...rate<KernelRow>(),
  ];
}
