// A log directory that changes while the page is open, behind a path prefix.

import { rmSync } from "node:fs";
import { afterAll, beforeAll, expect, inject, it } from "vitest";
import { openPage, openTab, sharedContext } from "./browser";
import { copyRuns, makeFolder, startTensorBoard, write, type TensorBoard } from "./tensorboard";

let logdir: string;
let tensorboard: TensorBoard;

beforeAll(async () => {
  logdir = makeFolder();
  tensorboard = await startTensorBoard(logdir, { flags: ["--path_prefix", "/board"] });
});

afterAll(async () => {
  await tensorboard.stop();
  rmSync(logdir, { recursive: true, force: true });
});

it("explains how to record, then finds the first trace, further ones, and a repaired one by itself", async () => {
  const { page, problems } = await openPage(await sharedContext());
  const frame = await openTab(page, tensorboard.url);
  await frame.getByRole("heading", { name: "No traces in this log directory yet" }).waitFor();
  await frame.getByRole("button", { name: "Copy recording block" }).click();
  await frame.getByRole("button", { name: "Copy recording block" }).filter({ hasText: "Copied" }).waitFor();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  expect(copied).toContain("tensorboard_trace_handler");

  copyRuns(inject("severalLogdir"), logdir, "healthy");
  await frame.getByRole("region", { name: "Verdict" }).locator("h1", { hasText: "GPU computing" }).waitFor();

  // A new run appears in the list, but the page keeps showing the current one.
  write(logdir, "later/w.1.pt.trace.json", '{"traceEvents": ');
  const run = frame.getByRole("combobox", { name: "Run" });
  await run.waitFor();
  await expect.poll(() => run.inputValue()).toBe("healthy");
  await run.fill("later");
  await frame.getByRole("option", { name: "later" }).click();
  await frame.getByRole("alert").waitFor();

  write(logdir, "later/w.1.pt.trace.json", traceOf("aten::mm"));
  await frame.getByText("No GPU activity recorded").waitFor();
  await frame.getByRole("cell", { name: "aten::mm", exact: true }).waitFor();

  // The same worker records again: the page says so, and goes there at a click.
  write(logdir, "later/w.2.pt.trace.json", traceOf("aten::relu"));
  await frame.getByRole("button", { name: "1 newer recording" }).click();
  await frame.getByRole("cell", { name: "aten::relu", exact: true }).waitFor();
  await frame.getByRole("button", { name: "newer recording" }).waitFor({ state: "detached" });
  expect(problems).toEqual([]);
  await page.close();
});

function traceOf(operator: string): string {
  const event = {
    ph: "X",
    cat: "cpu_op",
    name: operator,
    pid: 1,
    tid: 1,
    ts: 1,
    dur: 5000,
  };
  return JSON.stringify({ traceEvents: [event] });
}
