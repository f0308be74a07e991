import { expect, it } from "vitest";
import type { TraceEntry } from "../wire/report";
import { contentsOf, firstView, viewsFor } from "./views";

const trace = (id: string, run: string, worker: string) =>
  ({ id, run, worker, span: id, kind: "trace", content: `of ${id}` }) as TraceEntry;

const one = trace("1", "a", "w0");

it("offers the views that the directory has something for", () => {
  const ofTrace = ["summary", "timeline", "operators", "host", "memory"];
  const offered = (...others: TraceEntry[]) => viewsFor([one, ...others], one, "summary");
  expect(offered()).toEqual([...ofTrace, "recording"]);
  expect(offered(trace("2", "a", "w0"))).toEqual([...ofTrace, "history", "compare", "recording"]);
  expect(offered(trace("2", "a", "w1"))).toEqual([...ofTrace, "job", "compare", "recording"]);
  expect(offered(trace("2", "b", "w0"))).toEqual(["runs", ...ofTrace, "compare", "recording"]);
  const snapshot = { ...one, kind: "snapshot" as const };
  expect(viewsFor([snapshot], snapshot, "summary")).toEqual(["summary", "memory", "recording"]);
  const rank0 = { ...snapshot, worker: "rank0", of_rank: true };
  const rank1 = { ...rank0, id: "2", worker: "rank1" };
  expect(viewsFor([rank0, rank1], rank0, "summary")).toEqual([
    "summary",
    "memory",
    "job",
    "compare",
    "recording",
  ]);
  expect(viewsFor([rank0, snapshot], snapshot, "summary")).not.toContain("job");
  const record = { ...one, kind: "record" as const };
  const other = trace("2", "a", "w1");
  expect(viewsFor([record, other], record, "summary")).toEqual(["summary"]);
  expect(viewsFor([record, other], other, "summary")).not.toContain("job");
  const hang = { ...one, kind: "hang" as const };
  expect(viewsFor([hang, other], hang, "summary")).toEqual(["summary"]);
});

it("always offers the open view", () => {
  expect(viewsFor([one], one, "job")).toContain("job");
});

it("begins with the runs if there are several and no link asks for a trace", () => {
  const several = [one, trace("2", "b", "w0")];
  expect(firstView([one], null)).toBe("summary");
  expect(firstView(several, null)).toBe("runs");
  expect(firstView(several, "1")).toBe("summary");
});

it("knows when a file has changed", () => {
  expect(contentsOf([one])).not.toBe(contentsOf([{ ...one, content: "new" }]));
});
