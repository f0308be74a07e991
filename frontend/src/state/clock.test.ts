import { expect, it } from "vitest";
import type { ClockSlice, TraceEntry } from "../wire/report";
import { binOf, clockCurves, fileOf, recordedTogether, stepsOf, zoomed } from "./clock";

/** Steps 100 to 399 in bins of 100; the one in the middle is empty. */
const slice = {
  ...{ state: "ready", progress: 1, rank: 0, first_step: 0, last_step: 9_999, end_step: 400 },
  ...{ step: [100, 200, 300], steps: [100, 0, 100] },
  ...{ low_us: [1, 0, 2], median_us: [2, 0, 3], high_us: [50, 0, 4], mean_us: [3, 0, 3] },
  phases: [
    { name: "input", us: [1, 0, 2] },
    { name: "forward", us: [2, 0, 1] },
    { name: "wait", us: [0, 0, 0] },
    { name: "core", us: [1, 0, 1] },
    { name: "constructor", us: [1, 0, 1] },
  ],
} as unknown as ClockSlice;

it("stacks the phases, the first one below, and leaves out what is none or takes no time", () => {
  const [step, phases] = clockCurves(slice);
  expect(step?.lines[0]?.values).toEqual([2, null, 3]);
  expect(phases?.lines.map(({ name, values }) => [name, values])).toEqual([
    ["Forward", [3, null, 3]],
    ["Input", [1, null, 2]],
  ]);
});

it("keeps the axis low enough to see the median", () => {
  expect(clockCurves(slice)[0]?.highest).toBe(9);
});

it("has no phases where none was timed", () => {
  expect(clockCurves({ ...slice, phases: [] })).toHaveLength(1);
});

it("finds the bin of a step, and its steps", () => {
  expect([99, 100, 199, 200, 399, 400].map((step) => binOf(slice, step))).toEqual([NaN, 0, 0, 1, 2, NaN]);
  expect(stepsOf(slice, 1)).toEqual({ start: 200, end: 300 });
  expect(stepsOf(slice, 2)).toEqual({ start: 300, end: 400 });
});

it("zooms to an eighth around a step, inside the run, until there is little to see", () => {
  expect(zoomed(slice, 250)).toEqual({ start: 231, end: 269 });
  expect(zoomed({ ...slice, first_step: 100 }, 101)).toEqual({ start: 100, end: 138 });
  expect(zoomed({ ...slice, last_step: 399 }, 399)).toEqual({ start: 362, end: 400 });
  expect(zoomed({ ...slice, step: [388] }, 390)).toBeNull();
});

const made = { rank: 0, step: 5, why: "slow", worker: "w", span: "1", time_s: 2 };

it("lists recordings of several ranks once", () => {
  const other = { ...made, rank: 1, worker: "v" };
  const later = { ...made, step: 9 };
  expect(recordedTogether([made, other, later]).map(({ step, of }) => [step, of.length])).toEqual([
    [5, 2],
    [9, 1],
  ]);
});

it("finds the file of a recording in the run of its clock", () => {
  const clock = { run: "a/b/gpudiag/clock" } as TraceEntry;
  const file = { id: "f", run: "a/b", worker: "w", span: "1" } as TraceEntry;
  expect(fileOf([{ ...file, run: "a" }, file], clock, made)?.id).toBe("f");
  expect(fileOf([file], clock, { ...made, span: "2" })).toBeUndefined();
  expect(fileOf([{ ...file, run: "." }], { run: "gpudiag/clock" } as TraceEntry, made)?.id).toBe("f");
});
