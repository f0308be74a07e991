import { expect, it } from "vitest";
import { time } from "../base/format";
import { deltaOf, shareDelta } from "./delta";

it("says a difference by its sign, in words, and whether it is better", () => {
  expect(deltaOf(80, 100, time)).toEqual({ text: "-20\u00a0µs", words: "20.0% less", tone: "better" });
  expect(deltaOf(150, 100, time)).toEqual({ text: "+50\u00a0µs", words: "50.0% more", tone: "worse" });
  expect(deltaOf(150, 100, time, true)?.tone).toBe("better");
  expect(deltaOf(2000, 100, time)?.words).toBe("20 times as much");
  expect(deltaOf(5, 0, time)?.words).toBe("new");
  expect(deltaOf(0, 5, time)?.words).toBe("gone");
});

it("calls what changes from run to run neither better nor worse", () => {
  expect(deltaOf(101, 100, time)).toEqual({ text: "+1\u00a0µs", words: "1.0% more", tone: "same" });
  expect(deltaOf(100.01, 100, time)?.words).toBe("same");
  expect(shareDelta(0.561, 0.56).tone).toBe("same");
  expect(shareDelta(0.5, 0.75)).toEqual({ text: "-25 points", words: "less", tone: "worse" });
});

it("does not guess what is not known", () => {
  expect(deltaOf(NaN, 100, time)).toBeNull();
});
