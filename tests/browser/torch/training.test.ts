// A page that stays open while torch trains and records: files grow, appear and are deleted.

import { spawn, type ChildProcessByStdio } from "node:child_process";
import { once } from "node:events";
import { rmSync } from "node:fs";
import type { Writable } from "node:stream";
import { afterEach, beforeEach, expect, it } from "vitest";
import { openPage, openTab, sharedContext } from "../browser";
import { makeFolder, PROJECT, PYTHON, startTensorBoard, type TensorBoard } from "../tensorboard";

let logdir: string;
let tensorboard: TensorBoard;
let loop: ChildProcessByStdio<Writable, null, null>;

beforeEach(async () => {
  logdir = makeFolder();
  loop = spawn(PYTHON, ["-m", "tests.training.recording_loop", logdir], {
    cwd: PROJECT,
    stdio: ["pipe", "ignore", "inherit"],
  });
  tensorboard = await startTensorBoard(logdir);
});

afterEach(async () => {
  loop.kill();
  await tensorboard.stop();
  rmSync(logdir, { recursive: true, force: true });
});

it("follows a training that writes recordings and deletes old ones", async () => {
  const ended = once(loop, "exit");
  loop.stdin.write("plain\nkept\n");
  const { page, problems } = await openPage(await sharedContext());
  const frame = await openTab(page, tensorboard.url, { view: "runs" });
  const row = (run: string) => frame.getByRole("row").filter({ hasText: run });
  await row("plain").waitFor();
  await row("kept").waitFor();
  await row("kept").getByRole("button").click();
  await frame.getByRole("region", { name: "Verdict" }).waitFor();

  const newer = frame.getByRole("button", { name: /newer recording/ });
  const follow = async () => {
    await newer.click();
    await frame.getByRole("region", { name: "Verdict" }).waitFor();
    await expect.poll(() => newer.count()).toBe(0);
  };
  loop.stdin.write("plain\nkept\n");
  await follow();
  loop.stdin.end("kept\n"); // the first one is deleted
  await follow();
  expect(await ended).toEqual([0, null]);
  await frame.getByRole("navigation", { name: "Views" }).getByRole("button", { name: "Runs" }).click();
  await row("plain").waitFor();
  await expect
    .poll(() => frame.getByText(/being analyzed|in the queue|waiting for analysis|not analyzed/).count())
    .toBe(0);
  const listed = (await tensorboard.get("traces")) as { traces: { run: string; state: string }[] };
  expect(listed.traces.filter(({ run }) => run === "plain")).toHaveLength(2);
  expect(listed.traces.filter(({ run }) => run === "kept")).toHaveLength(2);
  expect(listed.traces.filter(({ state }) => state === "failed")).toEqual([]);
  expect(problems).toEqual([]);
  await page.close();
});
