import { screen, within } from "@testing-library/react";
import { expect, it } from "vitest";
import { plain } from "../../base/format.testdata";
import type { Report } from "../../wire/report";
import { renderPart } from "../page.testdata";
import { Modules } from "./Modules";

const rows = [
  { device: 0, module: "layers.*.<b>w1</b>", modules: 4, kernels: 24, us: 16_800, share: 0.361 },
  { device: 0, module: "", modules: 1, kernels: 2, us: 960, share: 0.02 },
];

function show(modules: typeof rows) {
  renderPart(<Modules report={{ modules, devices: [{}] } as unknown as Report} />);
}

it("gives each kind of module its GPU time, and says what is in none", () => {
  show(rows);
  const cells = within(screen.getByRole("table"))
    .getAllByRole("row")
    .slice(1)
    .map((row) =>
      within(row)
        .getAllByRole("cell")
        .map((cell) => plain(cell.textContent)),
    );
  expect(cells).toEqual([
    ["layers.*.<b>w1</b>", "4", "24", "16.8 ms", "36.1%"],
    ["(no module)", "", "2", "960 µs", "2.0%"],
  ]);
});

it("is not there without modules", () => {
  show([]);
  expect(screen.queryByRole("table")).toBeNull();
});
