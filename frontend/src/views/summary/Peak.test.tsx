import { screen, within } from "@testing-library/react";
import { expect, it } from "vitest";
import { plain } from "../../base/format.testdata";
import type { Mfu, MfuPart } from "../../wire/report";
import { renderPart } from "../page.testdata";
import { Peak } from "./Peak";

const parts = [
  { part: "idle", us: 200 },
  { part: "memory_bound", us: 300 },
  { part: "recomputed", us: 100 },
  { part: "model", us: 400 },
] as MfuPart[];

const mfu = {
  ...{ missing: "nothing", sentence: "MFU 40.0%", mfu: 0.4, hfu: 0.5, at_least: false, computes_in: "BF16" },
  ...{ peak_teraflops: 989, assumed: "", model_teraflops: 396, step_operations: 1e12, recomputing_us: 150 },
  ...{ parts, operators: [], steps: [] },
} as Mfu;

function show(one: Mfu | undefined) {
  return renderPart(<Peak mfu={one} />);
}

it("shows what the peak goes to, from what is lost first to what is left", () => {
  show(mfu);
  const section = screen.getByRole("region", { name: "Where the GPU's peak goes" });
  expect(plain(section.textContent)).toContain(
    "with what backward repeats 50.0% (HFU), in 15.0% of the time",
  );
  const rows = within(section).getAllByRole("row");
  expect(rows.map((row) => plain(row.textContent))).toEqual([
    "Idle20.0%",
    "Memory-bound30.0%",
    "Recomputed10.0%",
    "Model FLOPsMFU",
  ]);
});

it("draws each part where the ones before it end", () => {
  show(mfu);
  const bars = [...document.querySelectorAll<HTMLElement>(".gd-peak td > span")];
  const places = bars.map(({ style }) => [Math.round(parseFloat(style.marginLeft)), parseFloat(style.width)]);
  expect(places).toEqual([
    [80, 20],
    [50, 30],
    [40, 10],
    [0, 40],
  ]);
});

it("has nothing to show without an MFU", () => {
  show(undefined);
  show({ ...mfu, missing: "shapes", parts: [] });
  expect(screen.queryByRole("region")).toBeNull();
});
