import { expect, it } from "vitest";
import { kindFill, kindLabel, legend } from "./theme";

it("names each color of what is there once, the GPU's work first", () => {
  const shown = legend(new Set([1, 8, 6, 7]), "light");
  expect([...shown.values()]).toEqual(["Kernel", "Copy, memset", "Operator"]);
  expect([...legend(new Set(), "dark")]).toEqual([]);
});

it("shows communication in a color of its own", () => {
  expect(kindLabel(13)).toBe("Communication");
  const others = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
  for (const scheme of ["light", "dark"] as const)
    expect(others.map((kind) => kindFill(kind, scheme).color)).not.toContain(kindFill(13, scheme).color);
});

it("shows kinds that it does not know as events", () => {
  expect(kindLabel(99)).toBe("Event");
});
