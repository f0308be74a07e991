// Dumps of the flight recorder in a log directory: a job that hangs. tests/cli/test_hang.py has real ones.

import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { expect, it } from "vitest";
import { openTab } from "./browser";
import { Session } from "./session";
import { PROJECT, PYTHON, settle } from "./tensorboard";
import { MARKUP } from "./traces";

/** The last of three ranks does not come; and a job whose dumps have markup for every name. */
function writeDumps(logdir: string): void {
  const dumps = `
import sys
from pathlib import Path
from tests.trace.flight_recorder.dumps import WORLD, entry, write

logdir, markup = Path(sys.argv[1]), sys.argv[2]
done = [entry("all_reduce", 1 + n, back_end="gloo") for n in range(3)]
waits = entry("all_reduce", 4, state="scheduled", back_end="gloo")
for rank in range(3):
    write(logdir / "job" / "dumps", rank, done if rank == 2 else [*done, waits], {"": range(3)})

for rank in range(2):
    waits = entry("all_reduce" if rank else markup, 1, state="started")
    waits["process_group"] = (WORLD, markup)
    waits["input_dtypes"] = [markup]
    waits["frames"] = [{"name": markup, "filename": "/job/" + markup + ".py", "line": 3}]
    write(logdir / "markup", rank, [waits], {WORLD: (0, 1)}, as_json=bool(rank))
`;
  execFileSync(PYTHON, ["-c", dumps, logdir, MARKUP], { cwd: PROJECT });
  settle(join(logdir, "job"));
  settle(join(logdir, "markup"));
}

const session = new Session(writeDumps);

it("names the rank that holds up the job, and where each rank is", async () => {
  const frame = await openTab(session.page, session.tensorboard.url, { view: "runs" });
  await session.reportOf("job/dumps");
  await frame.getByRole("row").filter({ hasText: "Rank 2 holds up the job" }).waitFor();
  await frame.getByRole("button", { name: "job/dumps" }).click();
  const verdict = frame.getByRole("region", { name: "Verdict" });
  await verdict.getByRole("heading", { name: "Rank 2 holds up the job" }).waitFor();
  expect(await verdict.innerText()).toContain("Ranks 0 and 1 wait in all-reduce 4");
  const rows = frame.getByRole("table", { name: "Where the ranks are" }).locator("tbody tr");
  expect(await rows.count()).toBe(2);
  expect(await rows.first().innerText()).toMatch(/^2\s+After\s+all-reduce 3/);
  expect(await rows.last().innerText()).toMatch(/^0 and 1\s+Waiting in\s+all-reduce 4/);
  await frame.getByText("py-spy dump").waitFor();
  const tabs = frame.getByRole("navigation", { name: "Views" }).getByRole("button");
  expect(await tabs.allInnerTexts()).toEqual(["Runs", "Summary"]);
});

it("shows names as text", async () => {
  await session.reportOf("markup");
  const frame = await session.open("markup", "summary");
  await frame.getByRole("heading", { name: "Ranks call different collectives" }).waitFor();
  expect(await frame.getByRole("table", { name: "Where the ranks are" }).innerText()).toContain("<script>");
  expect(await frame.locator(".gd-card img, .gd-card script").count()).toBe(0);
});
