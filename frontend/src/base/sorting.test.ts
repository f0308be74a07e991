import { expect, it } from "vitest";
import { nextOrder, ordered } from "./sorting";

const self = (value: number | string) => value;

it("sorts numbers and names, and numbers in names by their value", () => {
  expect(ordered([3, 1, 2], self, true)).toEqual([3, 2, 1]);
  expect(ordered(["rank10", "rank2", "rank1"], self, false)).toEqual(["rank1", "rank2", "rank10"]);
});

it("puts unknown values last in both directions, and keeps the order of equal rows", () => {
  expect(ordered([NaN, 1, 2], self, true)).toEqual([2, 1, NaN]);
  expect(ordered([NaN, 2, 1], self, false)).toEqual([1, 2, NaN]);
  expect(ordered(["", "b", "a"], self, true)).toEqual(["b", "a", ""]);
  const rows = [
    { name: "first", value: 1 },
    { name: "second", value: 1 },
  ];
  expect(ordered(rows, ({ value }) => value, true)).toEqual(rows);
});

it("turns the order around at the second click", () => {
  const first = nextOrder({ by: "name", descending: false }, "saving", true);
  expect(first).toEqual({ by: "saving", descending: true });
  expect(nextOrder(first, "saving", true)).toEqual({ by: "saving", descending: false });
});
