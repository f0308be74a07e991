import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { table } from "../../base/tables.testdata";
import type { Report } from "../../wire/report";
import { renderPart } from "../page.testdata";
import { Compilations } from "./Compilations";

it("has a table for breaks and one for functions without CUDA graphs only if there are any", () => {
  const compile_log = { name: "x.log", torch: "2.13", malformed_entries: 0, notes: ["a note"] };
  const tables = [table("graph_breaks", { reason: ["text", ["a print"]] }, { title: "Graph breaks" })];
  renderPart(<Compilations report={{ compile_log, tables } as unknown as Report} />);
  expect(screen.getByRole("table", { name: "Graph breaks" }).textContent).toContain("a print");
  expect(screen.getAllByRole("table")).toHaveLength(1);
  expect(screen.getByText("a note")).toBeTruthy();
  expect(screen.getByText("x.log · torch 2.13")).toBeTruthy();
});
