import { describe, expect, it } from "vitest";
import type { StepTime } from "../../wire/report";
import { stepText } from "./stepText";

const step = {
  median_us: 20_000,
  mean_us: 20_000,
  unprofiled_us: 8_000,
  unprofiled_least_us: 5_000,
  unprofiled_most_us: 12_000,
};
const text = (changed: Partial<StepTime>) =>
  stepText({ ...step, ...changed } as StepTime).replaceAll("\u00a0", " ");

describe("stepText", () => {
  it("says the step without the profiler as a range", () => {
    expect(text({})).toBe("20 ms, about 8 ms (5 ms to 12 ms) without the profiler");
  });

  it("says no range of a job of ranks or a CPU, which have none", () => {
    expect(text({ unprofiled_least_us: 0, unprofiled_most_us: 0 })).toBe(
      "20 ms, about 8 ms without the profiler",
    );
  });

  it("says the mean where one of few steps is longer: savings are shares of it", () => {
    expect(text({ mean_us: 30_000, unprofiled_us: 29_000 })).toBe("20 ms (mean 30 ms)");
  });

  it("says the recorded step alone where the profiler takes nothing worth a word", () => {
    expect(text({ unprofiled_us: 19_500 })).toBe("20 ms");
  });
});
