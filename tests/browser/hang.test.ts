// Dumps of the flight recorder in a log directory: a job that hangs. Real ones where torch is there.

import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { expect, it } from "vitest";
import { openTab } from "./browser";
import { Session } from "./session";
import { PROJECT, PYTHON, settle } from "./tensorboard";
import { MARKUP } from "./traces";

const RANKS = 3;

/** The last of three ranks does not come, in a job of gloo; and one whose dumps have markup for every name. */
function writeDumps(logdir: string): void {
  const real = `
import importlib.util
import sys
from pathlib import Path
from tests.trace.flight_recorder.dumps import WORLD, entry, write

logdir, ranks, markup = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if importlib.util.find_spec("torch"):
    from tests.trace.flight_recorder.hanging_job import run_ranks

    assert not run_ranks(logdir / "real" / "dumps", ranks)
else:
    done = [entry("all_reduce", 1 + n) for n in range(3)]
    for rank in range(ranks):
        waits = [entry("all_reduce", 4, state="started")] if rank < ranks - 1 else []
        write(logdir / "real" / "dumps", rank, [*done, *waits], {WORLD: range(ranks)})

for rank in range(2):
    waits = entry("all_reduce" if rank else markup, 1, state="started")
    waits["process_group"] = (WORLD, markup)
    waits["input_dtypes"] = [markup]
    waits["frames"] = [{"name": markup, "filename": "/job/" + markup + ".py", "line": 3}]
    write(logdir / "markup", rank, [waits], {WORLD: (0, 1)}, as_json=bool(rank))
`;
  execFileSync(PYTHON, ["-c", real, logdir, String(RANKS), MARKUP], { cwd: PROJECT });
  settle(join(logdir, "real"));
  settle(join(logdir, "markup"));
}

const session = new Session(writeDumps);

it("names the rank that holds up the job, and where each rank is", async () => {
  const frame = await openTab(session.page, session.tensorboard.url, { view: "runs" });
  await session.reportOf("real/dumps");
  await frame.getByRole("row").filter({ hasText: "Rank 2 holds up the job" }).waitFor();
  await frame.getByRole("button", { name: "real/dumps" }).click();
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
