import { expect, it } from "vitest";
import type { CauseTime, History, HistoryPoint } from "../wire/report";
import { curvesOf, valueText } from "./history";

function point(more: Partial<HistoryPoint>): HistoryPoint {
  return {
    ...{ id: "p", worker: "w", span: "", time_s: 1, rank: 0, step_us: 0, low_step_us: 0, high_step_us: 0 },
    ...{ steps: 1, busy_share: 0, shares: [], floor_bytes: 0, peak_bytes: 0, limiter: "unknown", rules: [] },
    ...{ saving_us: 0, title: "", severity: 0, device_name: "", record: false },
    ...more,
  };
}

function curves(...points: HistoryPoint[]) {
  return curvesOf({ points } as unknown as History);
}

it("leaves out what no recording has, and gaps where one lacks it", () => {
  expect(curves(point({}))).toEqual([]);
  const [memory] = curves(point({ peak_bytes: 5 }), point({}));
  expect(memory?.title).toBe("Memory");
  expect(memory?.lines[0]?.values).toEqual([5, null]);
});

it("stacks the causes, the highest first", () => {
  const shares = (computing: number, input: number): CauseTime[] => [
    { cause: "input", us: input },
    { cause: "computing", us: computing },
    { cause: "sync", us: 0 },
  ];
  const [stack] = curves(point({ shares: shares(10, 5) }), point({ shares: shares(10, 1) }));
  expect(stack?.lines.map(({ name, values }) => [name, values])).toEqual([
    ["Data loading", [15, 11]],
    ["Computing", [10, 10]],
  ]);
});

it("writes values in the unit of their chart", () => {
  expect(valueText("share", 0.5)).toBe("50.0%");
  expect(valueText("time", 0)).toContain("0");
});
