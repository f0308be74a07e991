// Tables as CSV (RFC 4180), for spreadsheets.

import type { SortValue } from "./sorting";

/** Spreadsheets run a text that begins like this as a formula. Names in a trace come from somewhere else. */
const FORMULA = /^[=+\-@\t\r]/;

/** "date" is a Unix time in seconds, "share" a number from 0 to 1. */
export type Unit = "µs" | "bytes" | "bytes per step" | "GB/s" | "share" | "date";

/** The title of a column in a file: with the unit of its numbers. */
export function titleOf(column: { id: string; title: string; fileTitle?: string; unit?: Unit }): string {
  const title = column.fileTitle ?? (column.title || column.id);
  if (column.unit === undefined) return title;
  return `${title} (${column.unit === "date" ? "UTC" : column.unit})`;
}

/** The value of a field: dates as ISO 8601. */
export function valueOf(value: SortValue, unit: Unit | undefined): SortValue {
  if (unit !== "date" || typeof value !== "number" || !Number.isFinite(value)) return value;
  return new Date(value * 1000).toISOString();
}

function field(value: SortValue): string {
  if (typeof value === "number") return Number.isFinite(value) ? String(value) : "";
  const text = FORMULA.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Return lines of fields. Numbers are exact, and unknown ones are empty. */
export function csv(titles: readonly string[], rows: readonly (readonly SortValue[])[]): string {
  return [titles, ...rows].map((row) => `${row.map(field).join(",")}\r\n`).join("");
}
