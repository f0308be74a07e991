import { expect, test } from "vitest";
import { shapesText, shortName } from "./names";

test("a Python frame has its function first", () => {
  expect(shortName("some/where/model.py(7): forward", 3)).toBe("forward (model.py:7)");
  expect(shortName("nn.Module: Linear_3", 3)).toBe("Linear_3");
  expect(shortName("a(1): b", 1)).toBe("a(1): b");
});

test("input shapes", () => {
  expect(shapesText("[[2,8],[],[8]]")).toBe("2×8, ·, 8");
  expect(shapesText("[[2,")).toBe("[[2,");
});
