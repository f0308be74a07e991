// Sorting the rows of a table.

export interface Order {
  /** The id of the column. */
  readonly by: string;
  readonly descending: boolean;
}

/** What a row is sorted by. NaN and "" are unknown, and come last in both directions. */
export type SortValue = number | string;

/** Return the rows in order. Equal rows keep their order. */
export function ordered<T>(rows: readonly T[], value: (row: T) => SortValue, descending: boolean): T[] {
  const sign = descending ? -1 : 1;
  return rows
    .map((row) => ({ row, value: value(row) }))
    .sort((a, b) => {
      const unknown = Number(isUnknown(a.value)) - Number(isUnknown(b.value));
      return unknown !== 0 || isUnknown(a.value) ? unknown : sign * compared(a.value, b.value);
    })
    .map(({ row }) => row);
}

/** The order after a click on a column's header: reversed, or for another column, that column's usual direction. */
export function nextOrder(now: Order, by: string, descendsFirst: boolean): Order {
  return { by, descending: now.by === by ? !now.descending : descendsFirst };
}

function isUnknown(value: SortValue): boolean {
  return value === "" || Number.isNaN(value);
}

const COLLATOR = new Intl.Collator("en", { numeric: true });

function compared(a: SortValue, b: SortValue): number {
  return typeof a === "number" && typeof b === "number" ? a - b : COLLATOR.compare(String(a), String(b));
}
