import { expect, test } from "vitest";
import { below, foundWeight, neighbor, nodeAt, placed, ROW_PX, trunk } from "./flame";

/** root (10) over a (2), b (5) and c (3); b over d (4). */
const DATA = {
  names: ["root", "a", "b", "c", "d"],
  parent: [-1, 0, 0, 2, 0],
  name: [0, 1, 2, 4, 3],
  kind: [0, 1, 1, 1, 1],
  weight: [10, 2, 5, 4, 3],
};

test("in order, nodes follow one another as they come", () => {
  const flame = placed(DATA, "in_order");
  expect([...flame.left]).toEqual([0, 0, 2, 2, 7]);
  expect([...flame.depth]).toEqual([0, 1, 1, 2, 1]);
});

test("left heavy, the largest comes first", () => {
  const flame = placed(DATA, "left_heavy");
  expect(flame.rows).toEqual([[0], [2, 4, 1], [3]]);
  expect([...flame.left]).toEqual([0, 8, 0, 0, 5]);
});

test("a point hits the node that is drawn there", () => {
  const flame = placed(DATA, "in_order");
  expect(nodeAt(flame, 15, ROW_PX * 1.5, 100)).toBe(1);
  expect(nodeAt(flame, 25, ROW_PX * 1.5, 100)).toBe(2);
  expect(nodeAt(flame, 61, ROW_PX * 2.5, 100)).toBe(null);
  expect(nodeAt(flame, 10, ROW_PX * 9, 100)).toBe(null);
});

test("arrow keys lead to the caller, the heaviest callee and the neighbors", () => {
  const flame = placed(DATA, "in_order");
  expect(["ArrowDown", "ArrowUp"].map((key) => neighbor(flame, 0, key))).toEqual([2, null]);
  expect(["ArrowLeft", "ArrowRight", "ArrowUp"].map((key) => neighbor(flame, 2, key))).toEqual([1, 4, 0]);
});

test("what a found node calls does not count again", () => {
  const flame = placed(DATA, "in_order");
  expect(foundWeight(flame, new Set([2, 4, 3]))).toBe(8);
});

test("the trunk is the last caller of everything", () => {
  const chain = { ...DATA, parent: [-1, 0, 1, 1, 2], weight: [10, 10, 6, 4, 6] };
  expect(trunk(chain)).toBe(1);
  expect(trunk(DATA)).toBe(0);
  expect(trunk({ ...DATA, parent: [-1, -1, 0, 0, 0] })).toBe(null);
});

test("the nodes below one are a graph of their own", () => {
  const { data, nodes } = below(DATA, 2);
  expect(nodes).toEqual([2, 3]);
  expect([data.parent, data.weight, data.name]).toEqual([
    [-1, 0],
    [5, 4],
    [2, 4],
  ]);
});
