// Step clocks in a log directory: what a clock writes of given steps.

import { execFileSync } from "node:child_process";
import { join } from "node:path";
import type { Frame } from "playwright-core";
import { expect, it } from "vitest";
import { darken, violations } from "./axe";
import { openTab } from "./browser";
import { Session } from "./session";
import { PROJECT, PYTHON, settle } from "./tensorboard";
import { MARKUP } from "./traces";

const RUN = "short/gpudiag/clock";

/** A short run; and a long one of two ranks, one of which gets slower, with markup for every name. */
function writeClocks(logdir: string): void {
  const code = `
import json
import sys
from pathlib import Path

from tb_gpudiag.training.clocking import RankClock
from tests.training.test_step_drift import COLUMNS, INPUT, slowed, steps

logdir, markup = Path(sys.argv[1]), sys.argv[2]
RankClock(str(logdir / "short"), 0, 10.0).add(steps(150)[:, : COLUMNS - 1], 1, 1_800_000_000.0)

clocks = [RankClock(str(logdir / "long"), rank, 10.0) for rank in range(2)]
rows = [steps(12_000, seed=rank) for rank in range(2)]
rows[1][6_000:] = slowed(rows[1][6_000:], 30.0, INPUT)
for at in range(0, 12_000, 100):
    for rank, clock in enumerate(clocks):
        clock.add(rows[rank][at : at + 100, : COLUMNS - 1], 2, 1_800_000_000.0 + at / 10)
made = {"file": f"{markup}.17.pt.trace.json", "why": markup, "step": 6_100, "time_s": 1_800_000_610.0}
(logdir / "long/gpudiag/clock/rank-1/recorded").write_text(json.dumps({"recordings": [made]}))
`;
  execFileSync(PYTHON, ["-c", code, logdir, MARKUP], { cwd: PROJECT });
  settle(join(logdir, "short"));
  settle(join(logdir, "long"));
}

const session = new Session(writeClocks);

function texts(frame: Frame, table: string): Promise<string[]> {
  return frame.getByRole("table", { name: table }).locator("tbody tr").allInnerTexts();
}

it("shows the steps and their phases, which add up to them", async () => {
  const frame = await openTab(session.page, session.tensorboard.url, { view: "runs" });
  const { clock } = await session.reportOf(RUN);
  await frame.getByRole("button", { name: RUN }).click();
  const verdict = frame.getByRole("region", { name: "Verdict" });
  await verdict.getByRole("heading", { name: "Too early to find a drift" }).waitFor();
  await frame.getByRole("region", { name: "Step time" }).locator("canvas").waitFor();
  await frame.getByRole("region", { name: "Step by phase" }).locator("canvas").waitFor();
  const rows = await texts(frame, "Phases");
  expect(rows.map((row) => row.split(/\s/u)[0])).toContain("Forward");
  const shares = clock?.ranks[0]?.phases.map(({ share }) => share) ?? [];
  expect(shares.reduce((sum, share) => sum + share, 0)).toBeCloseTo(1, 6);
  const tabs = frame.getByRole("navigation", { name: "Views" }).getByRole("button");
  expect(await tabs.allInnerTexts()).toEqual(["Runs", "Summary"]);
});

it("shows the rank that drifts, zooms by keyboard, and goes back", async () => {
  await session.reportOf("long/gpudiag/clock");
  const frame = await session.open("long/gpudiag/clock", "summary");
  await frame.getByRole("heading", { name: "Steps take longer" }).waitFor();
  expect((await texts(frame, "Ranks"))[1]).toMatch(/longer since step (5,9|6,0)\d\d; .* \(input\)/u);
  await frame.getByText("Rank 1, steps 0 to 11,999. A point is 10 steps.").waitFor();
  const chart = frame.getByRole("group", { name: /^Step time by step/u });
  await chart.focus();
  await chart.press("ArrowRight");
  await chart.press("ArrowRight");
  await frame.getByText(/^Steps 10 to 19: median/u).waitFor();
  await chart.press("Enter");
  await frame.getByText("Rank 1, steps 0 to 1,499. A point is 1 step.").waitFor();
  await frame.getByRole("button", { name: "Whole run" }).click();
  await frame.getByText("Rank 1, steps 0 to 11,999.").waitFor();
  await frame.getByRole("button", { name: "Show rank 0" }).click();
  await frame.getByText("Rank 0, steps 0 to 11,999.").waitFor();
  expect(await violations(frame), "light").toEqual([]);
  await darken(session.page, frame);
  expect(await violations(frame, "color-contrast"), "dark").toEqual([]);
});

it("shows names as text", async () => {
  const frame = await session.open("long/gpudiag/clock", "summary");
  const recordings = frame.getByRole("region", { name: "Recordings" });
  await recordings.getByText("not in the log directory").waitFor();
  expect(await recordings.innerText()).toContain("<script>");
  expect(await frame.locator(".gd-card img, .gd-card script").count()).toBe(0);
});
