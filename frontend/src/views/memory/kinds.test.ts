import { expect, it } from "vitest";
import { CLEAR, distance, LOOKS } from "../../base/eyes.testdata";
import { memoryKind } from "./kinds";

const ALL = "parameter gradient optimizer_state activation temporary input before unknown".split(" ");

it("knows every kind of the report, and shows others by their own name", () => {
  expect(new Set(ALL.map((kind) => memoryKind(kind).label)).size).toBe(ALL.length);
  expect(memoryKind("gremlins").label).toBe("gremlins");
  expect(memoryKind("constructor").label).toBe("constructor");
});

it.each(LOOKS)("can be told apart by %s eyes in the %s theme", (eyes, scheme) => {
  const alike = ALL.flatMap((a, at) =>
    ALL.slice(at + 1)
      .filter((b) => distance(memoryKind(a).colour[scheme], memoryKind(b).colour[scheme], eyes) < CLEAR)
      .map((b) => `${a}-${b}`),
  );
  expect(alike).toEqual([]);
});
