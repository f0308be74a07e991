import { expect, it } from "vitest";
import { CLEAR, distance, LOOKS } from "../../base/eyes.testdata";
import { memoryKind } from "./kinds";

const ALL = "parameter gradient optimizer_state activation temporary input before unknown".split(" ");

it("has a label for every kind of the report, and shows others by their name", () => {
  expect(new Set(ALL.map((kind) => memoryKind(kind).label)).size).toBe(ALL.length);
  expect(memoryKind("gremlins").label).toBe("gremlins");
  expect(memoryKind("constructor").label).toBe("constructor");
});

it.each(LOOKS)("has distinct colors for %s vision in the %s theme", (eyes, scheme) => {
  const alike = ALL.flatMap((a, at) =>
    ALL.slice(at + 1)
      .filter((b) => distance(memoryKind(a).color[scheme], memoryKind(b).color[scheme], eyes) < CLEAR)
      .map((b) => `${a}-${b}`),
  );
  expect(alike).toEqual([]);
});
