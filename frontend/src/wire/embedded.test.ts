import { describe, expect, test } from "vitest";
import { timelineOf } from "../canvas/timeline.testdata";
import { partsFor } from "./embedded";
import { joined } from "./joined";

const range = (start_us: number, end_us: number) => ({ start_us, end_us });
const WHOLE = range(0, 1600);
const QUARTERS = [range(0, 400), range(400, 800), range(800, 1200), range(1200, 1600)];
/** Only the second quarter has finer parts. */
const SIXTEENTHS = [range(400, 500), range(500, 600), range(600, 700), range(700, 800)];
const PARTS = [WHOLE, ...QUARTERS, ...SIXTEENTHS];

describe("the parts for a range", () => {
  test("are the whole trace without a range", () => {
    expect(partsFor(PARTS, null, null)).toEqual([WHOLE]);
  });

  test("are the finest that there are", () => {
    expect(partsFor(PARTS, 510, 590)).toEqual([range(500, 600)]);
    expect(partsFor(PARTS, 390, 410)).toEqual([range(0, 400), range(400, 500)]);
    expect(partsFor(PARTS, 900, 1000)).toEqual([range(800, 1200)]);
  });

  test("are coarser where a finer one was left out", () => {
    const withoutOne = PARTS.filter((part) => part !== QUARTERS[0]);
    expect(partsFor(withoutOne, 100, 500)).toEqual([WHOLE]);
    expect(partsFor(withoutOne, 450, 500)).toEqual([range(400, 500)]);
  });
});

test("slices next to each other are joined, and what spans both is there once", () => {
  const spanning = [90, 30, "b"] as const;
  const left = timelineOf({ "stream 7": [[10, 5, "a"], spanning] }, { end_us: 100 });
  const right = timelineOf({ "stream 7": [spanning, [150, 10, "c"]] }, { start_us: 100, end_us: 200 });
  const empty = timelineOf({ "stream 7": [] }, { start_us: -100, end_us: 0 });
  const whole = joined([empty, left, right]);
  expect([whole.start_us, whole.end_us]).toEqual([-100, 200]);
  const [found] = whole.lanes;
  expect(found?.box_start_us).toEqual([10, 90, 150]);
  expect(found?.box_name.map((name) => whole.names[name])).toEqual(["a", "b", "c"]);
});
