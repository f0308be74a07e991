import { expect, it } from "vitest";
import { sliceOf } from "../../canvas/slice";
import { timelineOf } from "../../canvas/timeline.testdata";
import { longestIn } from "./longest";

it("lists the events in view in the order of time, cut to the view", () => {
  const slice = sliceOf(
    timelineOf({
      "GPU 0 stream 7": [
        [0, 100, "gemm"],
        [150, 40, "relu", { count: 3 }],
        [400, 10, "later"],
      ],
      main: [[50, 60, "train.py(3): step"]],
    }),
  );
  expect(longestIn(slice, { start_us: 60, end_us: 170 })).toEqual([
    { lane: "GPU 0 stream 7", name: "gemm", count: 1, start_us: 0, us: 40 },
    { lane: "main", name: "step  train.py:3", count: 1, start_us: 50, us: 50 },
    { lane: "GPU 0 stream 7", name: "relu", count: 3, start_us: 150, us: 20 },
  ]);
});

it("lists the longest of many", () => {
  const many = Array.from({ length: 1000 }, (_, at) => [at * 10, 1 + (at % 10), `k${at % 10}`] as const);
  const found = longestIn(sliceOf(timelineOf({ "GPU 0 stream 7": many })), { start_us: 0, end_us: 10_000 });
  expect(found).toHaveLength(40);
  expect(new Set(found.map(({ name }) => name))).toEqual(new Set(["k9"]));
  const starts = found.map(({ start_us }) => start_us);
  expect(starts).toEqual([...starts].sort((a, b) => a - b));
});
