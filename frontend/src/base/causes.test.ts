import { expect, it } from "vitest";
import { cause, paint, rank, WORK } from "./causes";
import { word } from "./terms";
import { CAUSES, FAMILIES } from "./vocabulary";

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
  expect(word(FAMILIES, "gemm")).toBe("Matmul");
  expect(word(FAMILIES, "gremlins")).toBe("gremlins");
  expect(word(FAMILIES, "toString")).toBe("toString");
});
