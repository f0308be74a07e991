import { expect, it } from "vitest";
import { cause, paint, rank, WORK } from "./causes";
import { CLEAR, distance, LOOKS } from "./eyes.testdata";

const IDLE =
  "input compile sync allocator collective python dispatch launch latency queued unlinked profiler".split(
    " ",
  );
const ALL = [...WORK, ...IDLE];

it("knows every cause of the ledger, in the ledger's order", () => {
  expect([...ALL].reverse().sort((a, b) => rank(a) - rank(b))).toEqual(ALL);
});

it("shows a cause that it does not know, by its own name and last", () => {
  expect(cause("gremlins").label).toBe("gremlins");
  expect(cause("constructor").label).toBe("constructor");
  expect(rank("gremlins")).toBeGreaterThan(rank("profiler"));
  expect(paint("gremlins", "dark")).toContain("#");
});

it.each(LOOKS)("can be told apart by %s eyes in the %s theme", (eyes, scheme) => {
  const alike = ALL.flatMap((a, at) =>
    ALL.slice(at + 1)
      .filter((b) => Boolean(cause(a).hatched) === Boolean(cause(b).hatched))
      .filter((b) => distance(cause(a).colour[scheme], cause(b).colour[scheme], eyes) < CLEAR)
      .map((b) => `${a}-${b}`),
  );
  expect(alike).toEqual([]);
});
