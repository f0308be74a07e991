import { screen, within } from "@testing-library/react";
import { expect, it } from "vitest";
import type { Report } from "../../wire/report";
import { renderPart } from "../page.testdata";
import { Compilations } from "./Compilations";

const place = (name: string, us: number) => ({
  file: "train.py",
  line: 9,
  line_kind: "DEFINITION",
  function: name,
  us,
});

const compilation = (name: string, us: number, more: object = {}) => ({
  place: place(name, us),
  reasons: [],
  misses: [],
  before: 0,
  failed: "",
  ranges: [],
  ...more,
});

function show(more: object): void {
  const log = { name: "x.log", torch: "2.13", malformed_entries: 0, notes: [] };
  const lists = { compilations: [], breaks: [], without_graphs: [] };
  const report = { compile_log: { ...log, ...lists, ...more } } as unknown as Report;
  renderPart(<Compilations report={report} />);
}

it("says why functions were compiled while the profiler recorded, and leaves out the others", () => {
  show({
    compilations: [
      compilation("loss", 900, { before: 2, reasons: ["“k == 1” did not hold"], misses: ["FX graph"] }),
      compilation("model", 500),
      compilation("earlier", 0),
    ],
  });
  const [, first, second, ...others] = within(screen.getByRole("table", { name: "Compilations" }))
    .getAllByRole("row")
    .map(({ textContent }) => textContent);
  expect(first).toContain("“k == 1” did not hold; not in the cache: FX graph");
  expect(second).toContain("for the first time");
  expect(others).toEqual([]);
});

it("has a table for breaks and one for functions without CUDA graphs only if there are any", () => {
  show({ breaks: [{ place: place("f", 0), reason: "a print", runs: 0, ranges: [] }], notes: ["a note"] });
  expect(screen.getByRole("table", { name: "Graph breaks" }).textContent).toContain("a print");
  expect(screen.queryByRole("table", { name: "Without CUDA graphs" })).toBeNull();
  expect(screen.getByText("a note")).toBeTruthy();
});
