import { expect, test } from "vitest";
import type { RooflinePoint } from "../../wire/report";
import { at, decades, placedPoints } from "./rooflineScale";

const POINT: RooflinePoint = {
  operator: "aten::mm",
  shapes: "[]",
  number: "float",
  family: "gemm",
  calls: 1,
  us: 10,
  operations: 2e9,
  bytes: 1e8,
  reached: 0,
};

test("a point is at its FLOP by byte and its TFLOP/s", () => {
  expect(placedPoints([POINT, { ...POINT, operations: 0 }])).toEqual([
    { point: POINT, intensity: 20, teraflops: 200 },
  ]);
});

test("scales have whole decades", () => {
  expect(decades([20, 3])).toEqual({ low: 0, high: 2 });
  expect(decades([10])).toEqual({ low: 1, high: 2 });
  expect(at({ low: 0, high: 2 }, 10)).toBe(0.5);
});
