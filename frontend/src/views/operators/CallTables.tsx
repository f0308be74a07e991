import { SegmentedControl, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useMemo, useState } from "react";
import { count, time } from "../../base/format";
import type { Order } from "../../base/sorting";
import { useAgainst } from "../../state/base";
import { useTableChange, type TableChange } from "../../state/baseTables";
import { useKernels, useOperators } from "../../state/calls";
import type { TimeSpan } from "../../wire/client";
import type { KernelTable, OperatorTable, Report, TraceEntry } from "../../wire/report";
import { DataTable, type Column } from "../parts/DataTable";
import { Section } from "../parts/Section";
import { CallDetailsPanel } from "./CallDetailsPanel";
import { kernelChanges, operatorChanges } from "./changeColumns";
import type { OpenRow } from "./openRow";
import { kernelColumns, operatorColumns } from "./operatorColumns";

interface Props {
  readonly entry: TraceEntry;
  readonly report: Report;
  readonly span: TimeSpan | null;
  readonly hasGpu: boolean;
  readonly kind: string;
  readonly onKind: (kind: string) => void;
  readonly open: OpenRow | null;
  readonly onOpen: (row: OpenRow | null) => void;
  /** The name that is selected in the flame graph. */
  readonly marked: string | null;
  readonly onRoot: (root: number) => void;
}

const KINDS = [
  { value: "operator", label: "Operators" },
  { value: "kernel", label: "Kernels" },
  { value: "range", label: "Ranges" },
  { value: "call", label: "Runtime calls" },
  { value: "python", label: "Functions" },
];

const GROUPS = [
  { value: "operator", label: "By name" },
  { value: "shapes", label: "By input shapes" },
  { value: "stack", label: "By call stack" },
  { value: "module", label: "By module" },
];

const KERNEL_GROUPS = [
  { value: "kernel", label: "By name" },
  { value: "operator", label: "By name and operator" },
];

/** More rows than anybody reads. The others are added up below the table. */
const LIMIT = 500;

const LINE_PX = 30;
const TWO_LINES_PX = 40;

/** A name that is cut to less says nothing: on a phone the table scrolls. */
const LEAST_NAME_PX = 150;

const TYPING_MS = 250;

/** The tables of operators and kernels, and the details of the row that is open. */
export function CallTables(props: Props) {
  const { entry, report, span, hasGpu, kind, onKind, open, onOpen } = props;
  const [text, setText] = useState("");
  const [filter] = useDebouncedValue(text.trim(), TYPING_MS);
  const [grouped, setGrouped] = useState<Readonly<Record<string, string>>>({});
  const [order, setOrder] = useState<Order>({ by: hasGpu ? "gpu_self" : "host_self", descending: true });
  const kernels = kind === "kernel";
  const group = grouped[kind] ?? (kernels ? "kernel" : "operator");
  const query = { group, sort: sortOf(kernels, order.by, hasGpu), filter, limit: LIMIT };
  const operators = useOperators(entry, kind, query, span, !kernels).data;
  const found = useKernels(entry, query, span, kernels).data;
  const known = operators?.state === "ready" ? operators : null;
  // Differences are per step: those of a selected range would be of other steps.
  const against = useAgainst(entry);
  const change = useTableChange(entry, report, against, kind, query, span === null);
  return (
    <Section
      title={KINDS.find(({ value }) => value === kind)?.label ?? "Calls"}
      aside={
        <span className="gd-controls gd-controls-wrap">
          <TextInput
            size="xs"
            aria-label="Filter the table by name"
            placeholder="Filter"
            value={text}
            onChange={(event) => setText(event.currentTarget.value)}
          />
          <Groups
            groups={groupsOf(kind, known)}
            value={group}
            onChange={(value) => {
              setGrouped({ ...grouped, [kind]: value });
              onOpen(null);
            }}
          />
          <SegmentedControl
            size="xs"
            aria-label="What the table shows"
            data={KINDS.filter(({ value }) => hasGpu || value !== "kernel")}
            value={kind}
            onChange={onKind}
          />
        </span>
      }
    >
      {against && span !== null && (
        <p className="gd-rest">Differences from the base are per step, so a selected range has none.</p>
      )}
      <Shown
        {...{ order, setOrder, open, onOpen }}
        kernels={kernels ? found : undefined}
        operators={kernels ? undefined : operators}
        marked={props.marked}
        change={change}
      />
      {change && change.gone.length > 0 && <Gone change={change} />}
      {open && (
        <CallDetailsPanel
          key={`${open.kind}/${open.group}/${open.key}`}
          {...{ entry, span, open, onOpen }}
          onRoot={props.onRoot}
        />
      )}
    </Section>
  );
}

function sortOf(kernels: boolean, by: string, hasGpu: boolean): string {
  if (kernels) return KERNEL_SORTS.has(by) ? by : "total";
  if (SORTS.has(by)) return by;
  return hasGpu ? "gpu_self" : "host_self";
}

function groupsOf(kind: string, table: OperatorTable | null): readonly { value: string; label: string }[] {
  if (kind === "kernel") return KERNEL_GROUPS;
  if (kind !== "operator") return [];
  return GROUPS.filter(({ value }) => hasGroup(value, table));
}

interface GroupsProps {
  readonly groups: readonly { value: string; label: string }[];
  readonly value: string;
  readonly onChange: (value: string) => void;
}

function Groups({ groups, value, onChange }: GroupsProps) {
  if (groups.length < 2) return null;
  return (
    <SegmentedControl
      size="xs"
      aria-label="Group rows"
      data={[...groups]}
      value={value}
      onChange={onChange}
    />
  );
}

interface ShownProps extends TableProps {
  readonly kernels: KernelTable | undefined;
  readonly operators: OperatorTable | undefined;
  readonly marked: string | null;
}

function Shown({ kernels, operators, marked, ...props }: ShownProps) {
  if (kernels?.state === "ready") return <Kernels table={kernels} {...props} />;
  if (operators?.state === "ready") return <Operators table={operators} marked={marked} {...props} />;
  return <p className="gd-nothing">Loading the table…</p>;
}

const KERNEL_SORTS = new Set(["total", "count", "mean", "max"]);

const SORTS = new Set(["gpu_self", "gpu_total", "host_self", "host_total", "calls"]);

function hasGroup(group: string, table: OperatorTable | null): boolean {
  if (group === "shapes") return table?.has_shapes ?? false;
  if (group === "stack") return table?.has_stacks ?? false;
  if (group === "module") return table?.has_modules ?? false;
  return true;
}

/** Rows of the base to name. */
const GONE_SHOWN = 3;

function Gone({ change: { gone } }: { change: TableChange }) {
  const shown = gone.slice(0, GONE_SHOWN).map(({ name, us }) => `${name} (${time(us)} per step)`);
  const more = gone.length - shown.length;
  return (
    <p className="gd-rest">
      Only in the base: {shown.join(", ")}
      {more > 0 && ` and ${count(more)} more`}.
    </p>
  );
}

/** The columns with the differences from the base after the name, where they are in sight. */
function withChanges<T>(
  columns: readonly Column<T>[],
  changes: readonly Column<T>[] | null,
): readonly Column<T>[] {
  return columns.flatMap((column) => (column.id === "name" ? [column, ...(changes ?? [])] : [column]));
}

interface TableProps {
  readonly change: TableChange | null;
  readonly order: Order;
  readonly setOrder: (order: Order) => void;
  readonly open: OpenRow | null;
  readonly onOpen: (row: OpenRow | null) => void;
}

function Operators({
  table,
  marked,
  change,
  ...props
}: TableProps & { table: OperatorTable; marked: string | null }) {
  const columns = useMemo(
    () => withChanges(operatorColumns(table), change && operatorChanges(change, table.has_gpu)),
    [table, change],
  );
  const rest = table.rest;
  return (
    <>
      <Table
        {...props}
        label={`Rows: ${table.kind} by ${table.group}`}
        rows={table.rows}
        columns={columns}
        kind={table.kind}
        group={table.group}
        marked={marked}
      />
      {rest && table.total_rows > table.rows.length && (
        <p className="gd-rest">
          And {count(table.total_rows - table.rows.length)} more: {count(rest.calls)} calls,{" "}
          {time(rest.host_self_us)} on the host, {time(rest.gpu_self_us)} on the GPU.
        </p>
      )}
    </>
  );
}

function Kernels({ table, change, ...props }: TableProps & { table: KernelTable }) {
  const columns = useMemo(
    () => withChanges(kernelColumns(), change && kernelChanges(change, table.group)),
    [table, change],
  );
  const order = columns.some(({ id }) => id === props.order.by)
    ? props.order
    : { by: "total", descending: true };
  return (
    <>
      <Table
        {...props}
        order={order}
        label="Rows: kernel"
        rows={table.rows}
        columns={columns}
        kind="kernel"
        group={table.group}
        marked={null}
      />
      {table.rest && table.total_rows > table.rows.length && (
        <p className="gd-rest">
          And {count(table.total_rows - table.rows.length)} more, {time(table.rest.total_us)}.
        </p>
      )}
    </>
  );
}

interface RowsProps<T> extends Omit<TableProps, "change"> {
  readonly label: string;
  readonly rows: readonly T[];
  readonly columns: readonly Column<T>[];
  readonly kind: string;
  readonly group: string;
  readonly marked: string | null;
}

function Table<T extends { key: number; name: string }>(props: RowsProps<T>) {
  const { label, rows, columns, kind, group, marked, order, setOrder, open, onOpen } = props;
  const isOpen = (row: T) =>
    open?.kind === kind && open.group === group ? open.key === row.key : row.name === marked;
  if (rows.length === 0) return <p className="gd-nothing">None recorded, or none match the filter.</p>;
  return (
    <DataTable
      label={label}
      columns={columns}
      rows={rows}
      rowKey={({ key }) => String(key)}
      order={order}
      onOrder={setOrder}
      rowHeight={group === "shapes" || group === "stack" || kind === "kernel" ? TWO_LINES_PX : LINE_PX}
      maxHeight="300px"
      minWidth={columns.reduce((sum, { width = LEAST_NAME_PX, saved }) => sum + (saved ? 0 : width), 0)}
      onOpen={(row) => onOpen(isOpen(row) && open ? null : { kind, group, key: row.key, name: row.name })}
      isOpen={isOpen}
    />
  );
}
