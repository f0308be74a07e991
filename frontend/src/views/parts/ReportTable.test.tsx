import { fireEvent, screen, within } from "@testing-library/react";
import { expect, it } from "vitest";
import { plain } from "../../base/format.testdata";
import { reportWith, table } from "../../base/tables.testdata";
import type { Table } from "../../wire/report";
import { renderPart } from "../page.testdata";
import { ReportTable } from "./ReportTable";

const modules = table("modules", {
  module: ["code", ["layers.*.<b>w1</b>", "", "norm"]],
  kernel_time: ["ns", [16_800_000, 960_000, 2_000_000]],
  share: ["share", [0.361, -1, 0.02]],
  kernels: ["count", [24, 2, 3]],
});

function show(shown: Table): void {
  renderPart(<ReportTable report={reportWith(shown)} id="modules" />);
}

function rows(): string[][] {
  return within(screen.getByRole("table"))
    .getAllByRole("row")
    .slice(1)
    .map((row) =>
      within(row)
        .getAllByRole("cell")
        .map((cell) => plain(cell.textContent)),
    );
}

it("writes figures in their unit, and leaves out those that are not known", () => {
  show(modules);
  expect(rows()).toEqual([
    ["layers.*.<b>w1</b>", "16.8 ms", "36.1%", "24"],
    ["", "960 µs", "", "2"],
    ["norm", "2 ms", "2.0%", "3"],
  ]);
});

it("is sorted by a column, largest figures first, and by it in the other direction at a second click", () => {
  show(modules);
  const title = screen.getByRole("button", { name: "share" });
  fireEvent.click(title);
  expect(rows().map(([name]) => name)).toEqual(["layers.*.<b>w1</b>", "norm", ""]);
  expect(screen.getByRole("columnheader", { name: "share" }).getAttribute("aria-sort")).toBe("descending");
  fireEvent.click(title);
  expect(rows().map(([name]) => name)).toEqual(["norm", "layers.*.<b>w1</b>", ""]);
});

it("leaves out columns for programs, and those that are empty in every row", () => {
  const columns = [
    ...modules.columns.map((column) =>
      column.id === "kernels" ? { ...column, shown: "data" as const } : column,
    ),
    ...table("", { queue: ["ns", [-1, -1, -1]] }).columns,
  ];
  show({ ...modules, columns });
  expect(screen.getAllByRole("columnheader").map(({ textContent }) => textContent)).toEqual([
    "module",
    "kernel_time",
    "share",
  ]);
});

it("is not there without rows", () => {
  show(table("others", {}));
  expect(screen.queryByRole("table")).toBeNull();
});
