// The Operators view in a real TensorBoard: tables, details, flame graph, CSV.

import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import type { KernelTable, OperatorTable } from "../../frontend/src/wire/report";
import { Session } from "./session";
import { MARKUP } from "./traces";

const RUN = "healthy";

const session = new Session();

it("shows operators with the largest GPU time first, and a row in detail", async () => {
  const { id } = await session.entryOf(RUN);
  await session.reportOf(RUN);
  const { rows } = (await session.tensorboard.get(`operators?id=${id}`)) as OperatorTable;
  const frame = await session.open(RUN, "operators");
  const table = frame.getByRole("table", { name: "Rows: operator by operator" });
  const first = table.locator("tbody tr").first();
  await first.waitFor();
  await expect.poll(() => first.locator("td").first().innerText()).toBe(rows[0]?.name);
  await first.getByRole("button").click();
  const details = frame.getByRole("region", { name: `Details of ${rows[0]?.name ?? ""}` });
  await details.getByText("Launches", { exact: true }).waitFor();
  await expect.poll(() => first.getAttribute("aria-current")).toBe("true");
  // The longest call leads to the timeline.
  await details
    .getByRole("button", { name: /^Show on the timeline/ })
    .first()
    .click();
  await session.untilHash((hash) => hash.includes("view=timeline") && hash.includes("gpudiag.s0="));
});

it("saves all rows of a table as CSV", async () => {
  const { id } = await session.entryOf("hostile");
  await session.reportOf("hostile");
  const { rows } = (await session.tensorboard.get(`kernels?id=${id}`)) as KernelTable;
  const frame = await session.open("hostile", "operators");
  await frame.getByText("Kernels", { exact: true }).first().click();
  await frame.getByRole("table", { name: "Rows: kernel" }).waitFor();
  const download = session.page.waitForEvent("download");
  await frame.getByRole("button", { name: "Save as CSV: Rows: kernel" }).click();
  const text = readFileSync(await (await download).path(), "utf8");
  expect(text.split("\r\n").length).toBe(rows.length + 2);
  expect(text).toContain(MARKUP.replaceAll('"', '""'));
});

it("zooms into a call of the flame graph with the keyboard, and out again", async () => {
  const frame = await session.open(RUN, "operators");
  const graph = frame.getByRole("group", { name: /^Flame graph by GPU time/ });
  await graph.focus();
  await graph.press("ArrowDown");
  await graph.press("ArrowDown");
  await graph.press("Enter");
  const path = frame.getByRole("navigation", { name: "Zoomed into" });
  await path.waitFor();
  await path.getByRole("button", { name: "All threads" }).click();
  await path.waitFor({ state: "detached" });
});
