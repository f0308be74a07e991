import { describe, expect, it } from "vitest";
import { deepest, NO_CHOICES, rowsOf } from "../../canvas/rows";
import { HEAD_PX } from "../../canvas/scene";
import { sliceOf } from "../../canvas/slice";
import { timelineOf } from "../../canvas/timeline.testdata";
import { lineOf, scrollTo } from "./inSight";

const slice = sliceOf(
  timelineOf({
    "GPU 0 stream 7": [[0, 10, "gemm"]],
    main: [
      [0, 100, "step"],
      [0, 50, "aten::linear", { depth: 1 }],
      [0, 20, "aten::mm", { depth: 2 }],
    ],
  }),
);
const [stream = "", main = ""] = slice.lanes.keys();
const rows = rowsOf(slice, deepest(new Map(), slice), NO_CHOICES);
const mainRow = rows.rows.find(({ key }) => key === main);
const spot = (lane: string, depth: number) => ({ lane, depth, start_us: 0, end_us: 10 });

describe("the line to bring into sight", () => {
  it("is that of the event's depth in its lane", () => {
    const { top = 0, step = 0 } = mainRow ?? {};
    expect(lineOf(rows, spot(main, 0), undefined)).toEqual({ top, height: step });
    expect(lineOf(rows, spot(main, 2), undefined)).toEqual({ top: top + 2 * step, height: step });
  });

  it("is the only one of a folded lane", () => {
    const folded = rowsOf(slice, new Map(), { ...NO_CHOICES, folded: new Set([main]) });
    expect(lineOf(folded, spot(main, 2), undefined)?.top).toBe(mainRow?.top);
  });

  it("is the first of the device's lanes if no event is selected", () => {
    expect(lineOf(rows, null, 0)?.top).toBe(rows.rows[0]?.top);
    expect(lineOf(rows, null, 3)).toBeNull();
    expect(lineOf(rows, null, undefined)).toBeNull();
  });

  it("is none for pinned lanes, which do not scroll away", () => {
    const pinned = rowsOf(slice, new Map(), { ...NO_CHOICES, pinned: new Set([stream]) });
    expect(lineOf(pinned, spot(stream, 0), undefined)).toBeNull();
  });
});

describe("the lanes", () => {
  /** From 100 to 300 px of the lanes are seen, the first 40 of them below pinned ones. */
  const sight = { scroll: 100, height: 200 + HEAD_PX, pinned: 40 };
  const to = (top: number) => scrollTo({ top, height: 15 }, sight, 60);

  it("scroll to a line above and below what is seen, and behind pinned lanes", () => {
    expect(to(500)).toBe(440);
    expect(to(290)).toBe(230);
    expect(to(90)).toBe(30);
    expect(to(130)).toBe(70);
    expect(to(20)).toBe(0);
  });

  it("stay where they are for a line in sight", () => {
    expect([140, 200, 285].map(to)).toEqual([null, null, null]);
  });
});
