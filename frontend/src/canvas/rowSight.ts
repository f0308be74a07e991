// Rows of equal height on a canvas that stays in place while they scroll.

/** The part of the rows that the canvas shows, in pixels. */
export interface RowSight {
  readonly width: number;
  readonly height: number;
  readonly scroll: number;
}

/** Return the first row in sight, and the one after the last. */
export function rowsInSight(
  { height, scroll }: RowSight,
  rowPx: number,
  rows: number,
): readonly [number, number] {
  const first = Math.max(Math.floor(scroll / rowPx), 0);
  return [first, Math.min(Math.ceil((scroll + height) / rowPx), rows)];
}

/** Scroll a box so that one of its rows is in sight. */
export function showRow(box: HTMLDivElement | null, row: number, rowPx: number): void {
  if (!box) return;
  const top = row * rowPx;
  if (top < box.scrollTop) box.scrollTo({ top });
  else if (top + rowPx > box.scrollTop + box.clientHeight) {
    box.scrollTo({ top: top + rowPx - box.clientHeight });
  }
}

/** Keys that move between the boxes of rows. */
export const ARROWS: ReadonlySet<string> = new Set(["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"]);
