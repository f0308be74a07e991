import { expect, it } from "vitest";
import type { MemorySlice } from "../wire/report";
import { columnAt, columnsOf, scaleOf, sizeMark } from "./memoryCurve";

function slice(
  allocated: [number, number, number][],
  reserved: [number, number][],
  end_us: number,
): MemorySlice {
  const curve = (points: number[][]) => ({
    time_us: points.map(([at = 0]) => at),
    low: points.map(([, low = 0]) => low),
    high: points.map(([, low = 0, high = low]) => high),
  });
  return { allocated: curve(allocated), reserved: curve(reserved), end_us } as unknown as MemorySlice;
}

it("merges both curves on one axis, to the end of the slice", () => {
  const columns = columnsOf(
    slice(
      [
        [0, 1, 1],
        [10, 2, 9],
        [20, 3, 3],
      ],
      [
        [0, 8],
        [15, 16],
        [20, 24],
      ],
      30,
    ),
  );
  expect(columns).toEqual({
    time_us: [0, 10, 15, 20, 30],
    low: [1, 2, 2, 3, 3],
    high: [1, 9, 9, 3, 3],
    reserved: [8, 8, 16, 24, 24],
  });
});

it("has no values before the recording", () => {
  const columns = columnsOf(slice([[5, 1, 1]], [], 9));
  expect(columns.reserved).toEqual([NaN, NaN]);
  expect(columnsOf(slice([], [], 9)).time_us).toEqual([]);
  expect(columnAt(columns, 4)).toBe(-1);
  expect(columnAt(columns, 5)).toBe(0);
  expect(columnAt(columns, 100)).toBe(1);
});

const VIEW = { start_us: 0, end_us: 100 };

it("starts the axis at 0, unless that would hide the changes", () => {
  const saw = columnsOf(
    slice(
      [
        [0, 0, 0],
        [10, 50, 100],
      ],
      [],
      100,
    ),
  );
  expect(scaleOf(saw, VIEW, 0).min).toBe(0);
  const flat = columnsOf(
    slice(
      [
        [0, 990, 990],
        [10, 1000, 1000],
      ],
      [],
      100,
    ),
  );
  const scale = scaleOf(flat, VIEW, 0);
  expect(scale.min).toBeGreaterThan(900);
  expect(scale.min).toBeLessThan(990);
  expect(scale.max).toBeGreaterThan(1000);
});

it("shows the capacity only if the curve comes near it", () => {
  const curve = columnsOf(
    slice(
      [
        [0, 0, 0],
        [10, 500, 500],
      ],
      [],
      100,
    ),
  );
  expect(scaleOf(curve, VIEW, 80_000)).toMatchObject({ capacity: false });
  expect(scaleOf(curve, VIEW, 80_000).max).toBeLessThan(600);
  const near = scaleOf(curve, VIEW, 600);
  expect(near.capacity).toBe(true);
  expect(near.max).toBeGreaterThan(600);
});

it("scales to allocated memory, and shows reserved memory if it fits", () => {
  const curve = (reserved: number) =>
    columnsOf(
      slice(
        [
          [0, 900, 900],
          [10, 1000, 1000],
        ],
        [[0, reserved]],
        100,
      ),
    );
  expect(scaleOf(curve(1100), VIEW, 0).max).toBeGreaterThan(1100);
  const far = scaleOf(curve(5000), VIEW, 6000);
  expect(far).toMatchObject({ reserved: false, capacity: false });
  expect(far.max).toBeLessThan(1100);
  // An axis from 0 always shows reserved memory.
  const saw = columnsOf(
    slice(
      [
        [0, 0, 0],
        [10, 100, 100],
      ],
      [[0, 5000]],
      100,
    ),
  );
  expect(scaleOf(saw, VIEW, 0)).toMatchObject({ min: 0, reserved: true });
});

it("scales to the visible part only, including the value at its start", () => {
  const curve = columnsOf(
    slice(
      [
        [0, 0, 0],
        [10, 500, 500],
        [20, 5000, 5000],
      ],
      [],
      100,
    ),
  );
  const scale = scaleOf(curve, { start_us: 12, end_us: 18 }, 0);
  expect(scale.max).toBeGreaterThan(500);
  expect(scale.max).toBeLessThan(600);
});

it("extends below 0 for a curve that is relative to the start of the recording", () => {
  const curve = columnsOf(
    slice(
      [
        [0, 0, 0],
        [10, -400, 100],
      ],
      [],
      100,
    ),
  );
  expect(scaleOf(curve, VIEW, 0).min).toBeLessThan(-400);
});

it("labels the axis as precisely as its ticks differ", () => {
  const GIB = 2 ** 30;
  expect(sizeMark(0, GIB)).toBe("0\u00a0B");
  expect([1, 1.5, 2].map((size) => sizeMark(size * GIB, GIB / 2))).toEqual([
    "1\u00a0GiB",
    "1.5\u00a0GiB",
    "2\u00a0GiB",
  ]);
  expect(sizeMark(1.5 * GIB, 2 ** 20)).toBe("1,536\u00a0MiB");
  const close = [0, 1, 2].map((n) => sizeMark(206 * 1024 + 512 * n, 512));
  expect(close).toEqual(["206\u00a0KiB", "206.5\u00a0KiB", "207\u00a0KiB"]);
  expect(sizeMark(-2048, 1024)).toBe("-2\u00a0KiB");
});

it("has a scale even for an empty curve, or one that is 0", () => {
  for (const curve of [columnsOf(slice([], [], 9)), columnsOf(slice([[0, 0, 0]], [], 9))]) {
    const { min, max } = scaleOf(curve, VIEW, 0);
    expect(max).toBeGreaterThan(min);
  }
});
