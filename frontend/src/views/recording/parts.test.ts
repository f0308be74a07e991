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
