import { useMemo, useState } from "react";
import { count, percent, plural, time } from "../../base/format";
import type { Order } from "../../base/sorting";
import { kindLabel } from "../../canvas/theme";
import type { CallTree } from "../../wire/report";
import { DataTable, type Column } from "../parts/DataTable";
import { figure } from "../parts/figure";

interface Row {
  readonly node: number;
  readonly depth: number;
  readonly name: string;
  readonly kind: string;
  readonly total_us: number;
  readonly self_us: number;
  readonly calls: number;
}

/** The nodes of the flame graph as a table, folded. */
export function FlameTable({ tree }: { tree: CallTree }) {
  const [open, setOpen] = useState(false);
  return (
    <details className="gd-flame-table" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>As a table ({plural(tree.node.length, "call")})</summary>
      {open && <Nodes tree={tree} />}
    </details>
  );
}

function Nodes({ tree }: { tree: CallTree }) {
  const [order, setOrder] = useState<Order>({ by: "", descending: false });
  const rows = useMemo(() => rowsOf(tree), [tree]);
  return (
    <DataTable
      label="Calls of the call tree"
      columns={columnsOf(tree)}
      rows={rows}
      rowKey={({ node }) => String(node)}
      order={order}
      onOrder={setOrder}
      maxHeight="360px"
      minWidth={640}
    />
  );
}

function rowsOf(tree: CallTree): Row[] {
  const depths: number[] = [];
  return tree.node.map((node, at) => {
    const parent = tree.parent[at] ?? -1;
    depths[at] = parent < 0 ? 0 : (depths[parent] ?? 0) + 1;
    const kind = tree.kind[at] ?? 0;
    return {
      node,
      depth: depths[at] ?? 0,
      name: tree.names[tree.name[at] ?? 0] ?? "",
      kind: kind === 0 ? "Thread" : kindLabel(kind),
      total_us: tree.node_us[at] ?? 0,
      self_us: tree.self_us[at] ?? 0,
      calls: tree.calls[at] ?? 0,
    };
  });
}

/** Deeper names begin at the same place. */
const MOST_INDENT = 24;

function columnsOf(tree: CallTree): readonly Column<Row>[] {
  return [
    {
      id: "name",
      title: "Call",
      value: ({ name }) => name,
      cell: ({ name, depth }) => (
        <span title={name} style={{ paddingLeft: Math.min(depth, MOST_INDENT) * 8 }}>
          {name}
        </span>
      ),
    },
    {
      id: "depth",
      title: "Depth",
      width: 64,
      figures: true,
      value: (row) => row.depth,
      cell: (row) => row.depth,
    },
    { id: "kind", title: "Kind", width: 110, value: ({ kind }) => kind, cell: ({ kind }) => kind },
    figure("calls", "Calls", 80, (row) => row.calls, count),
    figure("total_us", "Total", 92, (row) => row.total_us, time),
    {
      id: "share",
      title: "Share",
      unit: "share",
      width: 72,
      figures: true,
      value: (row) => row.total_us / tree.total_us,
      cell: (row) => percent(row.total_us, tree.total_us),
    },
    figure("self_us", "Self", 92, (row) => row.self_us, time),
  ];
}
