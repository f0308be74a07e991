// A page that stays open while torch trains and records: files grow, appear and are deleted. TRAINING_S=180 trains for
// three minutes.

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { rmSync } from "node:fs";
import { afterAll, beforeAll, expect, it } from "vitest";
import { openPage, openTab, sharedContext } from "./browser";
import { makeFolder, PROJECT, PYTHON, startTensorBoard, type TensorBoard } from "./tensorboard";

const TRAINING_S = Number(process.env.TRAINING_S ?? 5);

let logdir: string;
let tensorboard: TensorBoard;

function hasTorch(): boolean {
  try {
    execFileSync(PYTHON, ["-c", "import torch"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

beforeAll(async () => {
  logdir = makeFolder();
  tensorboard = await startTensorBoard(logdir);
});

afterAll(async () => {
  await tensorboard.stop();
  rmSync(logdir, { recursive: true, force: true });
});

it.skipIf(!hasTorch())(
  "follows a training that writes recordings and deletes old ones",
  async () => {
    const loop = spawn(PYTHON, ["-m", "tests.training.recording_loop", logdir], {
      cwd: PROJECT,
      stdio: ["pipe", "ignore", "inherit"],
    });
    const ended = once(loop, "exit");
    const { page, problems } = await openPage(await sharedContext());
    const frame = await openTab(page, tensorboard.url, { view: "runs" });
    const row = (run: string) => frame.getByRole("row").filter({ hasText: run });
    await row("plain").waitFor();
    await row("kept").waitFor();
    await row("kept").getByRole("button").click();
    await frame.getByRole("region", { name: "Verdict" }).waitFor();

    await new Promise((resolve) => setTimeout(resolve, TRAINING_S * 1000));
    await frame.getByRole("button", { name: /newer recording/ }).waitFor();
    loop.stdin.end();
    expect(await ended).toEqual([0, null]);
    await frame.getByRole("button", { name: /newer recording/ }).click();
    await frame.getByRole("region", { name: "Verdict" }).waitFor();
    await expect.poll(() => frame.getByRole("button", { name: /newer recording/ }).count()).toBe(0);
    await frame.getByRole("navigation", { name: "Views" }).getByRole("button", { name: "Runs" }).click();
    await row("plain").waitFor();
    await expect
      .poll(() => frame.getByText(/being analyzed|waiting for analysis|not analyzed/).count(), {
        timeout: 60_000, // several analyses, next to other tests
      })
      .toBe(0);
    const listed = (await tensorboard.get("traces")) as { traces: { run: string; state: string }[] };
    expect(listed.traces.filter(({ run }) => run === "kept")).toHaveLength(2);
    expect(listed.traces.filter(({ state }) => state === "failed")).toEqual([]);
    expect(problems).toEqual([]);
    await page.close();
  },
  (TRAINING_S + 120) * 1000,
);
