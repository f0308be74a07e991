import { expect, it } from "vitest";
import type { TraceEntry } from "../wire/report";
import { contentsOf, firstView, viewsFor } from "./views";

const trace = (id: string, run: string, worker: string) =>
  ({ id, run, worker, span: id, kind: "trace", content: `of ${id}` }) as TraceEntry;

const one = trace("1", "a", "w0");

it("offers the views that the directory has something for", () => {
  expect(viewsFor([one], one, "diagnosis")).toEqual(["diagnosis"]);
  expect(viewsFor([one, trace("2", "a", "w0")], one, "diagnosis")).toEqual([
    "diagnosis",
    "history",
    "compare",
  ]);
  expect(viewsFor([one, trace("2", "a", "w1")], one, "diagnosis")).toEqual(["diagnosis", "job", "compare"]);
  expect(viewsFor([one, trace("2", "b", "w0")], one, "diagnosis")).toEqual(["runs", "diagnosis", "compare"]);
});

it("always offers the open view", () => {
  expect(viewsFor([one], one, "job")).toEqual(["diagnosis", "job"]);
});

it("begins with the runs if there are several and no link asks for a trace", () => {
  const several = [one, trace("2", "b", "w0")];
  expect(firstView([one], null)).toBe("diagnosis");
  expect(firstView(several, null)).toBe("runs");
  expect(firstView(several, "1")).toBe("diagnosis");
});

it("knows when a file has changed", () => {
  expect(contentsOf([one])).not.toBe(contentsOf([{ ...one, content: "new" }]));
});
