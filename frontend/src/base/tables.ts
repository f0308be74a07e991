// Tables of the report: the text of their cells, and their order.

import { TableColumn_Shown, type Report, type Table, type TableColumn } from "../wire/report";
import { csv, titleOf, type Unit } from "./csv";
import { bytes, count, figures, percent, time } from "./format";
import type { SortValue } from "./sorting";

/** Return the report's table of this name; undefined if it has no rows. */
export function tableOf(report: Pick<Report, "tables">, id: string): Table | undefined {
  return report.tables.find((table) => table.id === id);
}

const TEXTS: Readonly<Record<string, (value: number) => string>> = {
  ns: (value) => time(value / 1000),
  bytes,
  share: percent,
  count,
  mean: figures,
};

const FILE_UNITS: Readonly<Record<string, Unit>> = {
  ns: "µs",
  bytes: "bytes",
  share: "share",
  "GB/s": "GB/s",
};

/** What a reader sees in a row of a column. Figures that are not known are left out. */
export function cellText({ unit, texts, numbers }: TableColumn, at: number): string {
  if (!unit) return texts[at] ?? "";
  const value = numbers[at] ?? -1;
  if (value < 0) return "";
  return TEXTS[unit]?.(value) ?? `${figures(value)}\u00a0${unit}`;
}

/** What rows are sorted by. */
export function sortValue({ unit, texts, numbers }: TableColumn, at: number): SortValue {
  const value = unit ? (numbers[at] ?? -1) : (texts[at] ?? "");
  return typeof value === "number" && value < 0 ? NaN : value;
}

/** All rows for a spreadsheet, in this order. */
export function tableCsv(table: Table, rows: readonly number[]): string {
  const columns = table.columns.filter(({ shown }) => shown !== TableColumn_Shown.data);
  const titles = columns.map(({ id, title, unit }) => titleOf({ id, title, ...unitOf(unit) }));
  return csv(
    titles,
    rows.map((at) => columns.map((column) => fileValue(column, at))),
  );
}

function unitOf(unit: string): { unit?: Unit } {
  const known = FILE_UNITS[unit];
  return known === undefined ? {} : { unit: known };
}

function fileValue(column: TableColumn, at: number): SortValue {
  const value = sortValue(column, at);
  return column.unit === "ns" && typeof value === "number" ? value / 1000 : value;
}

/** The columns that the page shows: those that say something of any row. */
export function shownColumns({ columns }: Table): TableColumn[] {
  return columns.filter(
    ({ shown, texts, numbers }) =>
      shown !== TableColumn_Shown.data && (texts.some(Boolean) || numbers.some((value) => value >= 0)),
  );
}

/** How links and buttons call a row: its first text, and its place in the code. */
export function rowTitle({ columns }: Table, at: number): string {
  const texts = columns.filter(({ unit, shown }) => !unit && shown === TableColumn_Shown.everywhere);
  const [first, ...others] = texts;
  const place = others.find(({ kind }) => kind === "code");
  return [first?.texts[at], place?.texts[at]].filter(Boolean).join(" ");
}
