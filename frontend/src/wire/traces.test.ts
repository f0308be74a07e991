import { expect, it } from "vitest";
import type { TraceEntry, TraceList } from "./report";
import { merged, naturally, sorted } from "./traces";

const entry = (id: string, more: Partial<TraceEntry> = {}): TraceEntry =>
  ({ id, run: id, worker: "w", span: "1", state: "new", ...more }) as TraceEntry;

const list = (traces: TraceEntry[], more: Partial<TraceList> = {}): TraceList => ({
  traces,
  generation: 1,
  scanned: true,
  problems: [],
  unchanged: false,
  removed: [],
  whole: false,
  more: false,
  ...more,
});

const ids = (found: TraceList) => found.traces.map(({ id }) => id);

it("takes a whole list as it is", () => {
  const answer = list([entry("b")], { whole: true });
  expect(merged(undefined, answer)).toBe(answer);
  expect(merged(list([entry("a")]), answer)).toBe(answer);
});

it("adds, replaces and removes what has changed", () => {
  const known = list([entry("a"), entry("b"), entry("c")]);
  const answer = list([entry("b", { state: "ready" }), entry("d")], { removed: ["a"], generation: 9 });
  const found = merged(known, answer);
  expect(ids(found)).toEqual(["b", "c", "d"]);
  expect(found.traces[0]?.state).toBe("ready");
  expect(found.generation).toBe(9);
});

it("sorts by run, worker and span, with numbers as numbers", () => {
  const traces = [
    entry("4", { run: "run10", worker: "a" }),
    entry("3", { run: "run9", worker: "rank10", span: "5" }),
    entry("2", { run: "run9", worker: "rank2", span: "1700000000000000001" }),
    entry("1", { run: "run9", worker: "rank2", span: "999" }),
    entry("0", { run: "." }),
  ];
  expect(ids(sorted(list(traces)))).toEqual(["0", "1", "2", "3", "4"]);
});

it("compares names as the server does", () => {
  const names = ["", ".", "a", "a2", "a02b", "a10", "b", "run1/x", "run10"];
  expect(names.toSorted(naturally)).toEqual(names);
});
