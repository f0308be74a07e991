import { expect, it } from "vitest";
import { cause, paint, rank, trigger, WORK } from "./causes";
import { word } from "./terms";
import { CAUSES, LIMITERS } from "./vocabulary";

it("orders work before idle causes", () => {
  const all = [...WORK, ...Object.keys(CAUSES)];
  expect([...all].reverse().sort((a, b) => rank(a) - rank(b))).toEqual(all);
});

it("shows an unknown cause by its id and last", () => {
  expect(cause("gremlins").word).toBe("gremlins");
  expect(cause("constructor").word).toBe("constructor");
  expect(rank("gremlins")).toBeGreaterThan(rank("unrecorded"));
  expect(paint("gremlins", "dark")).toContain("#");
});

it("hatches what the trace does not explain", () => {
  expect(paint("queued", "light")).toMatch(/^repeating-linear-gradient.*#[0-9a-f]{6}$/);
  expect(paint("sync", "light")).toMatch(/^#[0-9a-f]{6}$/);
});

it("shows unknown ids as they are", () => {
  expect(word(LIMITERS, "sync")).toBe("Synchronization");
  expect(word(LIMITERS, "gremlins")).toBe("gremlins");
  expect(word(LIMITERS, "toString")).toBe("toString");
  expect(trigger("gremlins")).toBe("gremlins");
});
