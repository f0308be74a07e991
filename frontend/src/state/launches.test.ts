import { describe, expect, it } from "vitest";
import type { LaunchHotspot } from "../wire/report";
import { arranged, FIRST_ORDER, pressed, isShown } from "./launches";

function spot(
  key: string,
  launches: number,
  idle_us: number,
  kind: LaunchHotspot["kind"] = "operator",
): LaunchHotspot {
  return {
    key,
    kind,
    launches,
    idle_us,
    host_us: 1,
    kernel_us: 1,
    empty_queue_share: 0,
    dispatch_us: 1,
    python_us: 1,
    idle_per_step_us: 0,
    full_queue_launches: 0,
    full_queue_us: 0,
    ranges: [],
  };
}

const spots = [
  spot("aten::mm", 3, 50),
  spot("aten::add_", 9, 20),
  spot("gemm", 5, 70, "kernel"),
  spot("aten::MUL", 9, 10),
];

describe("launches", () => {
  it("have columns for a full queue and for steps only if there is any", () => {
    const figures = ["full_queue_us", "idle_per_step_us", "dispatch_us"] as const;
    expect(figures.map((figure) => isShown(figure, spots))).toEqual([false, false, true]);
    const waited = spots.map((other) => ({ ...other, full_queue_us: 5, idle_per_step_us: 1 }));
    expect(figures.map((figure) => isShown(figure, waited))).toEqual([true, true, true]);
  });

  it("are sorted by the idle time that they caused, one kind at a time", () => {
    expect(arranged(spots, "operator", "", FIRST_ORDER).map(({ key }) => key)).toEqual([
      "aten::mm",
      "aten::add_",
      "aten::MUL",
    ]);
  });

  it("are found by part of their name, in any case", () => {
    expect(arranged(spots, "operator", " mul ", FIRST_ORDER).map(({ key }) => key)).toEqual(["aten::MUL"]);
    expect(arranged(spots, "operator", "gemm", FIRST_ORDER)).toEqual([]);
  });

  it("are sorted by the column that was clicked, and reversed by a second click", () => {
    const once = pressed(FIRST_ORDER, "launches");
    expect(arranged(spots, "operator", "", once).map(({ launches }) => launches)).toEqual([9, 9, 3]);
    const twice = pressed(once, "launches");
    expect(arranged(spots, "operator", "", twice).map(({ launches }) => launches)).toEqual([3, 9, 9]);
    expect(spots[0]?.key).toBe("aten::mm");
  });
});
