// The views of several traces in a real TensorBoard: runs, job, history and comparison.

import { join } from "node:path";
import type { Frame } from "playwright-core";
import { expect, inject, it } from "vitest";
import type { TraceList } from "../../frontend/src/wire/report";
import { openAlone, openTab, tabFrame } from "./browser";
import { Session, widens } from "./session";
import { RANKS } from "./shared";
import { repeat, settle } from "./tensorboard";

const session = new Session("several");

function rows(frame: Frame, table: string) {
  return frame.getByRole("table", { name: table }).locator("tbody tr");
}

it("begins with the runs, opens one, and goes back to where it was", async () => {
  await session.reportOf("input_pipeline");
  const frame = await openTab(session.page, session.tensorboard.url);
  await frame.getByRole("heading", { name: "Runs" }).waitFor();
  const { traces } = (await session.tensorboard.get("traces")) as TraceList;
  await expect.poll(() => rows(frame, "Runs").count()).toBe(new Set(traces.map(({ run }) => run)).size);
  // Others are analyzed meanwhile, and may be worse.
  const analyzed = rows(frame, "Runs").filter({ hasText: "input_pipeline" }).first();
  await expect.poll(() => analyzed.innerText()).toContain("Data loading");
  await frame.getByRole("textbox", { name: "Filter runs" }).fill("INPUT");
  await expect.poll(() => rows(frame, "Runs").count()).toBe(1);
  await session.untilHash((hash) => hash.includes("view=runs"));
  await frame.getByRole("button", { name: "input_pipeline" }).click();
  await frame.getByRole("region", { name: "Verdict" }).waitFor();
  const { id } = await session.entryOf("input_pipeline");
  await session.untilHash((hash) => hash.includes(`trace=${id}`) && hash.includes("view=summary"));

  await session.page.goBack();
  await frame.getByRole("heading", { name: "Runs" }).waitFor();
  await expect.poll(() => frame.getByRole("textbox", { name: "Filter runs" }).inputValue()).toBe("INPUT");
  await session.page.goForward();
  await frame.getByRole("region", { name: "Verdict" }).waitFor();
  await session.page.reload();
  await (await tabFrame(session.page)).getByRole("region", { name: "Verdict" }).waitFor();
});

it("shows the first runs without the list of all traces", async () => {
  let release: (value?: unknown) => void = () => undefined;
  const held = new Promise((resolve) => {
    release = resolve;
  });
  await session.page.route("**/traces*", async (route) => {
    await held;
    await route.continue();
  });
  const frame = await openAlone(session.page, session.tensorboard.url);
  await frame.getByRole("button", { name: "input_pipeline" }).waitFor();
  const tabs = frame.getByRole("navigation", { name: "Views" }).getByRole("button");
  expect(await tabs.allInnerTexts()).toEqual(["Runs"]);
  release();
  await expect.poll(() => tabs.allInnerTexts()).toContain("Summary");
});

it("analyzes the runs that are new by itself", async () => {
  repeat(inject("severalLogdir"), "healthy", "new", 1);
  settle(join(inject("severalLogdir"), "new"));
  const frame = await openAlone(session.page, session.tensorboard.url, { view: "runs" });
  const run = rows(frame, "Runs").filter({ has: frame.getByRole("button", { name: "new", exact: true }) });
  await run.locator('.gd-dot[data-state="ready"]').waitFor();
  await frame.getByRole("button", { name: "Stop" }).waitFor({ state: "detached" });
});

it("shows a job: one verdict, its ranks, and the map by keyboard", async () => {
  const { id } = await session.entryOf("job");
  const frame = await openAlone(session.page, session.tensorboard.url, { view: "job", trace: id });
  await frame.getByRole("region", { name: "Verdict" }).waitFor();
  await expect.poll(() => rows(frame, "Ranks").count()).toBe(RANKS);
  await expect.poll(() => widens(frame)).toBe(false);
  const map = frame.getByRole("img", { name: /by rank and cause/ });
  await map.focus();
  await session.page.keyboard.press("ArrowDown");
  await frame.getByText(/^Rank 0, Computing: \d/).waitFor();
  await frame.getByText("As a table").nth(1).click();
  await expect.poll(() => rows(frame, "Time by rank and cause").count()).toBe(RANKS);
  await rows(frame, "Ranks").nth(1).getByRole("button").click();
  await session.untilHash((hash) => hash.includes("trace=") && hash.includes("view=summary"));
  await session.page.goBack();
  await frame.getByRole("heading", { name: "Ranks", exact: true }).waitFor();
});

it("shows what the ranks do over time, and opens the timeline of one there", async () => {
  const { id } = await session.entryOf("job");
  const frame = await openAlone(session.page, session.tensorboard.url, { view: "job", trace: id });
  const chart = frame.getByRole("group", { name: /^Timeline of the ranks/ });
  await chart.focus();
  for (const key of ["ArrowRight", "ArrowDown", "ArrowRight"]) await session.page.keyboard.press(key);
  await frame.getByText(/^Rank 1, at .*all_reduce: waits \d/).waitFor();
  await frame.getByText("As a table").first().click();
  await expect.poll(() => rows(frame, "Stretches by rank").count()).toBeGreaterThan(RANKS);
  await session.page.setViewportSize({ width: 900, height: 800 });
  await expect.poll(() => widens(frame)).toBe(false);
  await chart.focus();
  await session.page.keyboard.press("Enter");
  await session.untilHash((hash) => hash.includes("view=timeline") && hash.includes(".t0="));
});

it("shows the history of a run, and opens the recording that is clicked", async () => {
  const { id } = await session.entryOf("again");
  const frame = await openAlone(session.page, session.tensorboard.url, { view: "history", trace: id });
  const chart = frame.getByRole("group", { name: /^Step time by recording/ });
  await chart.locator("canvas").waitFor();
  await expect.poll(() => rows(frame, "Recordings").count()).toBe(3);
  await frame.getByText("No lasting change.").waitFor();
  const box = await chart.boundingBox();
  if (!box) throw new Error("the chart is not on the screen");
  await session.page.mouse.move(box.x + box.width - 60, box.y + 60);
  await frame.getByText(/^2023-11-14 .*: median/).waitFor();
  await session.page.mouse.down();
  await session.page.mouse.up();
  const { traces } = (await session.tensorboard.get("traces")) as TraceList;
  const last = traces.filter(({ run }) => run === "again").sort((a, b) => Number(b.span) - Number(a.span))[0];
  await session.untilHash(
    (hash) => hash.includes(`trace=${last?.id ?? "none"}`) && hash.includes("view=summary"),
  );
});

it("compares a run that is dragged onto another with it, and with a checked one by keyboard", async () => {
  const base = await session.entryOf("input_pipeline");
  const candidate = await session.entryOf("healthy");
  const compared = (hash: string) =>
    hash.includes("view=compare") &&
    hash.includes(`trace=${candidate.id}`) &&
    hash.includes(`base=${base.id}`);
  const frame = await openAlone(session.page, session.tensorboard.url, { view: "runs" });
  const name = (run: string) => frame.getByRole("button", { name: run, exact: true });
  await name("healthy").dragTo(name("input_pipeline"));
  await session.untilHash(compared);
  await session.page.goBack();
  for (const run of ["input_pipeline", "healthy"]) {
    await name(run).focus();
    await session.page.keyboard.press("ArrowRight");
    await session.page.keyboard.press("Space");
  }
  await session.untilHash(compared);
});

it("compares a recording with a pinned base, and swaps them", async () => {
  const base = await session.entryOf("input_pipeline");
  const candidate = await session.entryOf("healthy");
  const frame = await session.open("input_pipeline");
  await frame.getByRole("button", { name: "Pin as base" }).click();
  await session.untilHash((hash) => hash.includes(`base=${base.id}`));
  await openAlone(session.page, session.tensorboard.url, {
    view: "compare",
    trace: candidate.id,
    base: base.id,
  });
  const verdict = frame.getByRole("region", { name: "Verdict" });
  await verdict.locator("h1", { hasText: "Faster" }).waitFor();
  await expect.poll(() => frame.getByRole("heading", { name: "Gone" }).count()).toBe(1);
  await expect.poll(() => widens(frame)).toBe(false);
  await frame.getByRole("button", { name: "Swap" }).click();
  await verdict.locator("h1", { hasText: "Slower" }).waitFor();
  await session.untilHash(
    (hash) => hash.includes(`trace=${base.id}`) && hash.includes(`base=${candidate.id}`),
  );
  await session.page.goBack();
  await verdict.locator("h1", { hasText: "Faster" }).waitFor();
});
