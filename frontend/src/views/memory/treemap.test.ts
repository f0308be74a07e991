import { expect, it } from "vitest";
import { squarify, type Rect } from "./treemap";

const WITHIN: Rect = { x: 10, y: 20, width: 300, height: 120 };

function overlap(a: Rect, b: Rect): number {
  const wide = Math.min(a.x + a.width, b.x + b.width) - Math.max(a.x, b.x);
  const high = Math.min(a.y + a.height, b.y + b.height) - Math.max(a.y, b.y);
  return Math.max(0, wide) * Math.max(0, high);
}

it.each([[[5]], [[6, 6, 4, 3, 2, 2, 1]], [[1000, 1, 1, 1]], [Array.from({ length: 60 }, (_, n) => 61 - n)]])(
  "fills the whole rectangle in proportion, without overlap: %j",
  (sizes) => {
    const rects = squarify(sizes, WITHIN);
    const total = sizes.reduce((sum, size) => sum + size, 0);
    expect(rects).toHaveLength(sizes.length);
    rects.forEach((rect, at) => {
      expect(rect.width * rect.height).toBeCloseTo((36_000 * (sizes[at] ?? 0)) / total, 4);
      expect(rect.x).toBeGreaterThanOrEqual(10 - 1e-6);
      expect(rect.y).toBeGreaterThanOrEqual(20 - 1e-6);
      expect(rect.x + rect.width).toBeLessThanOrEqual(310 + 1e-6);
      expect(rect.y + rect.height).toBeLessThanOrEqual(140 + 1e-6);
      for (const other of rects.slice(at + 1)) expect(overlap(rect, other)).toBeLessThan(1e-6);
    });
  },
);

it("makes tiles that are close to squares", () => {
  for (const { width, height } of squarify([6, 6, 4, 3, 2, 2, 1], { x: 0, y: 0, width: 600, height: 400 }))
    expect(Math.max(width / height, height / width)).toBeLessThan(3);
});

it("handles no sizes and no room", () => {
  expect(squarify([], WITHIN)).toEqual([]);
  expect(squarify([3, 2], { ...WITHIN, width: 0 }).every(({ width }) => width === 0)).toBe(true);
});
