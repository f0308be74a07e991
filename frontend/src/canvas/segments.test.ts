import { describe, expect, test } from "vitest";
import type { MapSegment, SegmentMap } from "../wire/report";
import { boxAt, boxBeside, boxesOfRows, SEGMENT_LABEL_PX, SEGMENT_PX, stackOfBox } from "./segments";

function segment(bytes: number): MapSegment {
  return {
    ...{ address: "0x0", bytes, used_bytes: 0, largest_free_bytes: 0, blocks: 0 },
    ...{ stream: "0", pool: 0, expandable: false, boxed: true },
  };
}

/** Two blocks in the first segment, none in the second, one in the third. */
const MAP: SegmentMap = {
  ...{ state: "ready", progress: 1, error: undefined, device: 0, at_us: 0, segments: 3, bytes: 300 },
  ...{ used_bytes: 0, inactive_bytes: 0, free_bytes: 0, outside_bytes: 0 },
  rows: [segment(100), segment(100), segment(100)],
  box_row: [0, 0, 2],
  box_offset: [0, 50, 20],
  box_bytes: [10, 50, 40],
  box_requested: [10, 50, 40],
  box_count: [1, 1, 1],
  box_made_us: [0, 0, 0],
  box_freed_us: [-1, -1, -1],
  box_node: [1, -1, 0],
  node_parent: [-1, 0],
  node_name: [1, 0],
  names: ["forward", "main"],
};
const boxes = boxesOfRows(MAP);
const stage = { map: MAP, boxes, width: SEGMENT_LABEL_PX + 100 };

describe("a box", () => {
  test("is found by its place, also just outside of a narrow one", () => {
    const at = (x: number, row: number) => boxAt(stage, SEGMENT_LABEL_PX + x, row * SEGMENT_PX + 1);
    expect([at(5, 0), at(11, 0), at(60, 0)]).toEqual([0, 0, 1]);
    expect([at(30, 0), at(30, 1), at(30, 2), at(30, 3), at(-5, 0)]).toEqual([null, null, 2, null, null]);
  });

  test("is reached with the arrow keys, past rows without any", () => {
    const next = (from: number | null, key: string) => boxBeside(stage, from, key);
    expect([next(null, "ArrowDown"), next(0, "ArrowRight"), next(1, "ArrowDown")]).toEqual([0, 1, 2]);
    expect([next(2, "ArrowUp"), next(1, "ArrowLeft"), next(1, "ArrowRight")]).toEqual([0, 0, null]);
    expect([next(0, "ArrowUp"), next(2, "ArrowDown")]).toEqual([null, null]);
  });

  test("has its call stack, innermost first", () => {
    expect([0, 1, 2].map((box) => stackOfBox(MAP, box))).toEqual([["forward", "main"], [], ["main"]]);
  });
});
