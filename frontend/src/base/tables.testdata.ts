import type { Report, Table, TableColumn, TimeRange } from "../wire/report";

type Cells = readonly (string | number)[];

/** A table of the report: its columns by id, each with its unit or kind. */
export function table(
  id: string,
  columns: Readonly<Record<string, readonly [string, Cells]>>,
  more: Partial<Table> = {},
): Table {
  const made = Object.entries(columns).map(([name, [unit, cells]]): TableColumn => {
    const isText = unit === "text" || unit === "code" || unit === "name";
    return {
      ...{ id: name, title: name, explanation: "", shown: "everywhere", tips: [] },
      kind: isText ? unit : "number",
      unit: isText ? "" : unit,
      texts: isText ? cells.map(String) : [],
      numbers: isText ? [] : cells.map(Number),
    };
  });
  const count = Object.values(columns)[0]?.[1].length ?? 0;
  const rows = Array.from({ length: count }, (): { ranges: TimeRange[] } => ({ ranges: [] }));
  return { id, title: id, about: "", columns: made, rows, first: count, ...more };
}

export function reportWith(...tables: Table[]): Report {
  return { tables } as unknown as Report;
}
