// A real TensorBoard with event files only: the traces were deleted.

import { expect, inject, it } from "vitest";
import { openAlone, openTab } from "./browser";
import { Session } from "./session";
import { copyRuns, keepRecordsOnly, repeat } from "./tensorboard";

const session = new Session((logdir) => {
  copyRuns(inject("severalLogdir"), logdir, "input_pipeline", "healthy");
  repeat(logdir, "healthy", "again", 3);
  keepRecordsOnly(logdir, "input_pipeline", "healthy", "again");
});

it("shows runs, a summary and the history of recordings whose traces were not kept", async () => {
  const frame = await openTab(session.page, session.tensorboard.url, { view: "runs" });
  const rows = frame.getByRole("table", { name: "Runs" }).locator("tbody tr");
  await expect.poll(() => rows.count()).toBe(3);
  expect(await rows.first().innerText()).toContain("Data loading");
  await rows.getByRole("button", { name: "input_pipeline" }).click();
  await frame.getByText("The trace was not kept").waitFor();
  await frame.getByRole("region", { name: "Verdict" }).waitFor();
  const tabs = frame.getByRole("navigation", { name: "Views" }).getByRole("button");
  expect(await tabs.allInnerTexts()).toEqual(["Runs", "Summary"]);

  const { id } = await session.entryOf("again");
  const history = await openAlone(session.page, session.tensorboard.url, { trace: id, view: "history" });
  await history.getByText("3 recordings without a trace").waitFor();
});

it("says so in a view that needs the trace", async () => {
  const { id } = await session.entryOf("healthy");
  const frame = await openAlone(session.page, session.tensorboard.url, { trace: id, view: "timeline" });
  await frame.getByText("The trace was not kept").waitFor();
});
