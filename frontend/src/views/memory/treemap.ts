// A squarified treemap (Bruls, Huizing, van Wijk 2000): rectangles with given areas, close to squares.

export interface Rect {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

/** Return a rectangle per size. They fill `within`. Sizes are positive; descending order gives the best result. */
export function squarify(sizes: readonly number[], within: Rect): Rect[] {
  const total = sizes.reduce((sum, size) => sum + size, 0);
  if (!(total > 0)) return sizes.map(() => ({ ...within, width: 0, height: 0 }));
  const scale = (within.width * within.height) / total;
  const areas = sizes.map((size) => size * scale);
  const found: Rect[] = [];
  let left = within;
  for (let first = 0; first < areas.length; ) {
    const side = Math.min(left.width, left.height);
    let end = first + 1;
    while (end < areas.length && worst(areas, first, end + 1, side) <= worst(areas, first, end, side))
      end += 1;
    const row = areas.slice(first, end);
    left = lay(row, left, found);
    first = end;
  }
  return found;
}

/** Worst aspect ratio of areas `first` to `end`, laid out along a side. */
function worst(areas: readonly number[], first: number, end: number, side: number): number {
  const row = areas.slice(first, end);
  const sum = row.reduce((total, area) => total + area, 0);
  const most = Math.max(...row);
  const least = Math.min(...row);
  return Math.max((side * side * most) / (sum * sum), (sum * sum) / (side * side * least));
}

/** Lay out a row along the shorter side, and return the remaining rectangle. */
function lay(row: readonly number[], { x, y, width, height }: Rect, found: Rect[]): Rect {
  const sum = row.reduce((total, area) => total + area, 0);
  const across = width < height;
  const thick = sum / Math.max(Math.min(width, height), Number.MIN_VALUE);
  let along = across ? x : y;
  for (const area of row) {
    const length = thick > 0 ? area / thick : 0;
    found.push(
      across ? { x: along, y, width: length, height: thick } : { x, y: along, width: thick, height: length },
    );
    along += length;
  }
  return across
    ? { x, y: y + thick, width, height: Math.max(0, height - thick) }
    : { x: x + thick, y, width: Math.max(0, width - thick), height };
}
