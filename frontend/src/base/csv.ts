// Tables as CSV (RFC 4180), for spreadsheets.

import type { SortValue } from "./sorting";

/** Spreadsheets run a text that begins like this as a formula. Names in a trace come from somewhere else. */
const FORMULA = /^[=+\-@\t\r]/;

function field(value: SortValue): string {
  if (typeof value === "number") return Number.isFinite(value) ? String(value) : "";
  const text = FORMULA.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Return lines of fields. Numbers are exact, and unknown ones are empty. */
export function csv(titles: readonly string[], rows: readonly (readonly SortValue[])[]): string {
  return [titles, ...rows].map((row) => `${row.map(field).join(",")}\r\n`).join("");
}
