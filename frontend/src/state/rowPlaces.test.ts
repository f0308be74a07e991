import { expect, it } from "vitest";
import { table } from "../base/tables.testdata";
import type { Report, TimeRange } from "../wire/report";
import { rowPlaces } from "./rowPlaces";

const range = (start_us: number): TimeRange => ({ start_us, end_us: start_us + 10, device: 0 });

const COLLECTIVES = {
  collective: ["text", ["all-gather"]],
  calls: ["count", [3]],
  for: ["code", ["layers.0"]],
} as const;

const message = {
  findings: [
    { rule: "GD101", title: "Waits", ranges: [range(1)] },
    { rule: "GD101", title: "Waits again", ranges: [range(2), range(3)] },
    { rule: "GD901", title: "No stacks", ranges: [] },
  ],
  launch_hotspots: [{ key: "aten::mm", ranges: [range(4)] }],
  tables: [
    table("collectives", COLLECTIVES, { rows: [{ ranges: [range(5)] }] }),
    table("host", { activity: ["name", ["collate"]] }, { rows: [{ ranges: [range(7)] }] }),
    table("modules", { module: ["code", ["norm"]] }),
  ],
  devices: [{ id: 3, step_accounts: [{ name: "ProfilerStep#1", start_us: 8, duration_us: 5 }] }],
  inferred_steps: { device: 3, accounts: [{ name: "1", start_us: 9, duration_us: 5 }] },
  memory: [{ sites: [{ operator: "aten::empty", ranges: [range(10)] }] }],
};
const report = message as unknown as Report;

it("returns the places of each row of each list, under a unique name", () => {
  const known = rowPlaces(report);
  expect([...known.values()].map(({ row, title, ranges }) => [row, title, ranges[0]?.start_us])).toEqual([
    ["finding.GD101", "Waits", 1],
    ["finding.GD101-2", "Waits again", 2],
    ["launches.0", "aten::mm", 4],
    ["collectives.0", "all-gather layers.0", 5],
    ["host.0", "collate", 7],
    ["steps3.0", "ProfilerStep#1", 8],
    ["inferred.0", "1", 9],
    ["memory.0", "aten::empty", 10],
  ]);
  expect(known.get(report.launch_hotspots[0] ?? {})?.ranges).toEqual([range(4)]);
});

it("uses a step's time as its place, and leaves out findings without a place", () => {
  const known = rowPlaces(report);
  const step = report.devices[0]?.step_accounts[0];
  expect(known.get(step ?? {})?.ranges).toEqual([{ start_us: 8, end_us: 13, device: 3 }]);
  expect(known.has(report.findings[2] ?? {})).toBe(false);
});
