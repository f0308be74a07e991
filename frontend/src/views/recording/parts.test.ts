import { expect, test } from "vitest";
import type { Report } from "../../wire/report";
import { partsOf } from "./parts";

test("what was not recorded says how to record it", () => {
  const recorded = { steps: true, stacks: false, shapes: false, memory: true, flops: false };
  const report = { devices: [], trace: { recorded } } as unknown as Report;
  const missing = partsOf(report).filter((part) => !part.recorded);
  expect(missing.map(({ name }) => name)).toEqual(["GPU activity", "Python stacks", "Shapes"]);
  expect(missing.map(({ how }) => how).join()).toContain("with_stack=True");
});

test("what a report of Nsight Systems lacks names its options", () => {
  const recorded = { steps: false, stacks: false, shapes: false, memory: false, flops: false };
  const report = { devices: [], trace: { recorded, recorder: "nsys" } } as unknown as Report;
  const how = partsOf(report)
    .map((part) => part.how)
    .join();
  expect(how).toContain("--python-backtrace=cuda");
  expect(how).toContain("--cuda-memory-usage=true");
  expect(how).not.toMatch(/with_stack|profile_memory|ProfilerActivity|prof\.step/);
});
