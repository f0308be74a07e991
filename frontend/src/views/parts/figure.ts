import { bytes, percent, time } from "../../base/format";
import type { Unit } from "../../base/csv";
import type { Column } from "./DataTable";

type Text = (value: number) => string;

const UNITS: ReadonlyMap<Text, Unit> = new Map<Text, Unit>([
  [time, "µs"],
  [bytes, "bytes"],
  [percent, "share"],
]);

/** A column of figures, written by `text`. Those that are NaN are not known: they are left out, and sort last. */
export function figure<T>(
  id: string,
  title: string,
  width: number,
  value: (row: T) => number,
  text: Text,
  about?: string,
): Column<T> {
  const unit = UNITS.get(text);
  return {
    ...{ id, title, width, figures: true, value },
    ...(unit === undefined ? {} : { unit }),
    ...(about === undefined ? {} : { about }),
    cell: (row) => (Number.isNaN(value(row)) ? "" : text(value(row))),
  };
}
