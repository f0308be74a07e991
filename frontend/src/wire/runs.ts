// The table of runs, which the server sends in parts as it does the list of traces.

import type { RunTable } from "./report";

/** Apply the server's answer to the table that the page has. The rows are in no order. */
export function mergedRuns(known: RunTable | undefined, answer: RunTable): RunTable {
  if (!known || answer.whole) return answer;
  const rows = new Map(known.rows.map((row) => [row.id, row]));
  for (const id of answer.removed) rows.delete(id);
  for (const row of answer.rows) rows.set(row.id, row);
  return { ...answer, rows: [...rows.values()] };
}
