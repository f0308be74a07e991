import { screen, within } from "@testing-library/react";
import { expect, it } from "vitest";
import { plain } from "../../base/format.testdata";
import type { CapturedGraphs } from "../../wire/report";
import { renderPart } from "../page.testdata";
import { GraphKernels } from "./GraphKernels";

const node = {
  ...{ operator: "aten::mm", shapes: "[[32,64],[64,64]]", module: "Linear", kernel: "<b>gemm</b>" },
  ...{ kernels: 24, us: 1_200, place: undefined },
};

const graphs = {
  ...{ files: ["capture.json"], kernels: 421, matched: 421, sentence: "Kernels in graphs: 100% of 421." },
  nodes: [node],
} as unknown as CapturedGraphs;

function show(one: CapturedGraphs | undefined) {
  renderPart(<GraphKernels graphs={one} />);
}

it("gives each kernel of a graph its operator, shapes and module", () => {
  show(graphs);
  const row = within(screen.getByRole("table")).getAllByRole("row")[1];
  const cells = row && within(row).getAllByRole("cell");
  expect(cells?.map((cell) => plain(cell.textContent))).toEqual([
    ...["aten::mm32×64, 64×64", "Linear", "<b>gemm</b>", "24"],
    "1.20 ms",
  ]);
});

it("claims nothing where no capture fits", () => {
  show({ ...graphs, matched: 0, sentence: "Kernels in graphs: 0% of 421 were found." });
  expect(screen.queryByRole("table")).toBeNull();
  expect(plain(document.body.textContent)).toContain("0% of 421");
});
