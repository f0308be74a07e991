// The Diagnosis tab in a real TensorBoard.

import type { Frame } from "playwright-core";
import { expect, it } from "vitest";
import { sentence, words } from "../../frontend/src/base/format";
import { darken, violations } from "./axe";
import { openAlone, openTab, tabFrame } from "./browser";
import { goTo, Session, shownTime, widens } from "./session";
import { LONG, MARKUP } from "./traces";

const RUN = "input_pipeline";

const session = new Session();

/** "< 0.01 ms" counts as 0. */
function milliseconds(text: string | null): number {
  if (text?.startsWith("<")) return 0;
  return Math.round(Number.parseFloat((text ?? "").replaceAll(",", "")) * 100);
}

/** Open the finding to fix first, by the card that shows it. */
async function openFirst(frame: Frame): Promise<void> {
  await frame.getByRole("button", { name: "Evidence, all places and code" }).click();
}

// No other test opens the traces of these two.
it("shows progress, then the verdict, when a trace is opened for the first time", async () => {
  const frame = await session.open("launch_bound");
  await frame.locator(".gd-analyzing").waitFor();
  await frame.locator("h1", { hasText: "Kernel launches" }).waitFor();
  await expect.poll(() => frame.locator(".gd-analyzing").count()).toBe(0);
});

it("cancels an analysis on demand, and resumes it", async () => {
  const frame = await session.open("queued");
  await frame.getByRole("button", { name: "Cancel" }).click();
  await frame.getByText("was canceled").waitFor();
  await frame.getByRole("button", { name: "Analyze" }).click();
  await frame.getByRole("region", { name: "Verdict" }).waitFor();
});

it("shows the verdict of the report: limiter, sentence, GPU busy, steps", async () => {
  const report = await session.reportOf(RUN);
  const frame = await session.open(RUN);
  const verdict = frame.getByRole("region", { name: "Verdict" });
  await verdict.locator("h1", { hasText: "Data loading" }).waitFor();
  const text = await verdict.innerText();
  expect(text).toContain(report.verdict?.sentence);
  expect(text).toContain(`${(100 * (report.verdict?.busy_share ?? 0)).toFixed(1)}%`);
  expect(text).toContain("Simulated");
  const figures = frame.getByRole("region", { name: "Where the time went" });
  await expect.poll(() => figures.innerText()).toMatch(new RegExp(`Steps\\s+${report.steps.length}\\b`));
});

it("shows causes whose displayed times add up to the step window", async () => {
  const report = await session.reportOf(RUN);
  const frame = await session.open(RUN);
  const cells = frame.locator(".gd-legend tr[data-part] td:nth-child(2)");
  await cells.first().waitFor();
  const parts = (await cells.allInnerTexts()).map(milliseconds);
  const total = milliseconds(await frame.locator(".gd-legend [data-part=total]").innerText());
  expect(parts.length).toBeGreaterThan(2);
  expect(parts.reduce((sum, part) => sum + part, 0)).toBe(total);
  expect(total).toBe(Math.round((report.devices[0]?.window_us ?? 0) / 10));
  await expect
    .poll(() => frame.locator(".gd-stepbars .gd-stepbar").count())
    .toBe(report.devices[0]?.step_accounts.length);
});

it("shows the MFU, and parts of the peak that add up, in both themes and on a phone", async () => {
  const { mfu } = await session.reportOf("before");
  const frame = await session.open("before");
  await expect
    .poll(() => frame.getByRole("region", { name: "Verdict" }).innerText())
    .toContain(mfu?.sentence.split(":")[0]);
  const rows = frame
    .getByRole("table", { name: "Parts of the step window at the stated peak" })
    .locator("tr");
  await expect.poll(() => rows.count()).toBe(mfu?.parts.length ?? 0);
  // The share of the model itself is the MFU, which the page says once: each row's tooltip has its own.
  const titles = await rows.evaluateAll((all) => all.map((row) => row.getAttribute("title") ?? ""));
  const shares = titles.map((title) => parseFloat(/([\d.]+)%/.exec(title)?.[1] ?? ""));
  expect(shares.reduce((sum, share) => sum + share, 0)).toBeCloseTo(100, 0);
  expect(await violations(frame)).toEqual([]);
  await session.page.setViewportSize({ width: 390, height: 844 });
  await expect.poll(() => widens(frame)).toBe(false);
  await darken(session.page, frame);
  expect(await violations(frame, "color-contrast")).toEqual([]);
});

it("shows where to fix, how, and what it brings, without scrolling or a click", async () => {
  const report = await session.reportOf(RUN);
  const finding = report.findings[0];
  await session.page.setViewportSize({ width: 1280, height: 800 });
  const frame = await session.open(RUN);
  const first = frame.locator(".gd-first");
  await first.getByRole("heading", { name: finding?.title ?? "" }).waitFor();
  const text = await first.innerText();
  expect(text).toContain(finding?.places[0]?.function);
  expect(text).toContain(finding?.fix?.text);
  expect(text).toMatch(/Gain\s+[\d.,]+\s*ms → /);
  const bottom = await first.evaluate((element) => element.getBoundingClientRect().bottom);
  expect(bottom).toBeLessThan(await frame.evaluate(() => window.innerHeight));
  await first.getByRole("button", { name: "Copy first fix" }).click();
  const copied = await session.page.evaluate(() => navigator.clipboard.readText());
  expect(finding?.fix?.code).toContain(copied);
});

it("returns with Back from a finding, a view and a trace, and forgets no zoom", async () => {
  const { id } = await session.entryOf(RUN);
  const report = await session.reportOf(RUN);
  await session.reportOf("healthy");
  const frame = await session.open(RUN, "summary", openTab);
  await openFirst(frame);
  await session.untilHash((hash) => hash.includes("p.gpudiag.finding="));
  await goTo(frame, "Timeline");
  await frame.locator(".gd-label").first().waitFor();
  await frame.locator(".gd-lanes").focus();
  await session.page.keyboard.press("n");
  const gap = await session.untilHash((hash) => hash.includes("p.gpudiag.gap=") && hash.includes("t0="));
  await goTo(frame, "Host");
  await frame.getByRole("region", { name: "Launches" }).waitFor();
  const run = frame.getByRole("combobox", { name: "Run" });
  await run.fill("healthy");
  await frame.getByRole("option", { name: "healthy" }).click();
  await session.untilHash((hash) => !hash.includes(id));
  await session.page.goBack();
  await session.untilHash((hash) => hash.includes(id) && hash.includes("view=host"));
  await session.page.goBack();
  await frame.locator(".gd-gap").waitFor();
  expect(new URL(session.page.url()).hash).toBe(gap);
  await session.page.goBack();
  await frame.locator(".gd-finding[data-opened]", { hasText: report.findings[0]?.title ?? "" }).waitFor();
  await session.page.goBack();
  await frame.locator(".gd-finding[data-opened]").waitFor({ state: "detached" });
  await session.untilHash((hash) => hash.includes("view=summary"));
  // The link of the gap opens it for somebody else.
  await session.page.goto("about:blank");
  await session.page.goto(`${session.tensorboard.url}${gap}`);
  await (await tabFrame(session.page)).locator(".gd-gap").waitFor();
});

it("expands a finding and copies its fix", async () => {
  const report = await session.reportOf(RUN);
  const finding = report.findings[0];
  const frame = await session.open(RUN);
  await openFirst(frame);
  await frame.locator(".gd-evidence").waitFor();
  await expect.poll(() => frame.locator(".gd-evidence tr").count()).toBe(finding?.evidence.length);
  const copy = frame.getByRole("button", { name: `Copy fix for ${finding?.rule ?? ""}` });
  await copy.click();
  await copy.filter({ hasText: "Copied" }).waitFor();
  const copied = await session.page.evaluate(() => navigator.clipboard.readText());
  expect(copied).toBe(finding?.fix?.code.replace(/\n+$/, ""));
});

it("explains a rule in a side panel, by keyboard", async () => {
  const rule = (await session.reportOf(RUN)).findings[0]?.rule ?? "";
  const frame = await session.open(RUN);
  const button = frame.locator(".gd-first").getByRole("button", { name: `${rule} · Explain` });
  await button.focus();
  await session.page.keyboard.press("Enter");
  const panel = frame.getByRole("dialog", { name: `Rule ${rule}` });
  await panel.getByRole("heading", { name: rule }).waitFor();
  await panel.getByRole("heading", { name: "Known limits" }).waitFor();
  await session.page.keyboard.press("Tab");
  await expect.poll(() => panel.evaluate((dialog) => dialog.contains(document.activeElement))).toBe(true);
  await session.page.keyboard.press("Escape");
  await panel.waitFor({ state: "detached" });
  await expect.poll(() => button.evaluate((element) => element === document.activeElement)).toBe(true);
});

it("lists the rules that could not check, and those that found no problem", async () => {
  const report = await session.reportOf("healthy");
  const frame = await session.open("healthy");
  await frame.getByText("A better recording").click();
  await frame.getByText("Checked, no problem found").click();
  const lists = frame.locator(".gd-others ul");
  await lists.first().locator("li").first().waitFor();
  const text = (await lists.allInnerTexts()).join("\n");
  for (const { name } of [...report.unchecked, ...report.clear]) expect(text).toContain(words(name));
  for (const { reason } of report.unchecked) expect(text).toContain(sentence(reason));
  const rule = report.clear[0]?.rule ?? "";
  await lists.first().getByRole("button", { name: rule }).click();
  const panel = frame.getByRole("dialog", { name: `Rule ${rule}` });
  await panel.getByRole("heading", { name: rule }).waitFor();
  await panel.getByRole("button", { name: "Close" }).click();
  await panel.waitFor({ state: "detached" });
});

it("sorts the launches by any column, and marks the column", async () => {
  const spots = (await session.reportOf(RUN)).launch_hotspots;
  const kind = spots[0]?.kind;
  const most = (figure: "dispatch_us" | "idle_us", sign: number) =>
    spots.filter((spot) => spot.kind === kind).sort((a, b) => sign * (b[figure] - a[figure]))[0]?.key;
  const frame = await session.open(RUN, "host");
  const table = frame.getByRole("region", { name: "Launches" }).getByRole("table").first();
  const first = table.locator("tbody td").first();
  await table.locator('th[aria-sort="descending"]', { hasText: "Idle caused" }).waitFor();
  await expect.poll(() => first.innerText()).toBe(most("idle_us", 1));
  const title = table.getByRole("button", { name: "Operator overhead" });
  await title.click();
  await table.locator('th[aria-sort="descending"]', { hasText: "Operator overhead" }).waitFor();
  await expect.poll(() => first.innerText()).toBe(most("dispatch_us", 1));
  await title.press("Enter");
  await table.locator('th[aria-sort="ascending"]', { hasText: "Operator overhead" }).waitFor();
  await expect.poll(() => first.innerText()).toBe(most("dispatch_us", -1));
});

it("follows TensorBoard's theme", async () => {
  const frame = await session.open(RUN, "summary", openTab);
  await frame.locator("h1").waitFor();
  const background = () => frame.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  await session.page.locator("app-header-dark-mode-toggle button").click();
  await session.page.getByRole("menuitem", { name: "Dark" }).click();
  await expect.poll(background).not.toBe(light);
});

it("restores trace, finding and range from a link", async () => {
  const { id } = await session.entryOf("host_sync");
  await session.reportOf("host_sync");
  const range = { view: "timeline", trace: id, t0: "5000.000", t1: "9000.000" };
  const frame = await openAlone(session.page, session.tensorboard.url, range);
  await shownTime(frame).waitFor();
  await expect.poll(() => shownTime(frame).innerText()).toContain("4\u00a0ms");
  await goTo(frame, "Summary");
  await openFirst(frame);
  const title = await frame.locator(".gd-finding-head b").first().innerText();
  const hash = await session.untilHash((now) => now.includes("p.gpudiag.finding="));
  await session.page.reload();
  const again = await tabFrame(session.page);
  await again.locator(".gd-finding[data-opened]", { hasText: title }).waitFor();
  expect(new URL(session.page.url()).hash).toBe(hash);
  await goTo(again, "Timeline");
  await again.locator(".gd-label").first().waitFor();
  await expect.poll(() => shownTime(again).innerText()).toContain("4\u00a0ms");
});

it("shows only the memory of a memory snapshot, and nothing about time", async () => {
  await session.reportOf("snapshot");
  const frame = await session.open("snapshot");
  await frame.locator("h1", { hasText: /^Memory leak on GPU 0: 4/ }).waitFor();
  await expect.poll(() => frame.locator(".gd-chooser-file").innerText()).toContain("CUDA memory snapshot");
  const tabs = frame.getByRole("navigation", { name: "Views" });
  for (const name of ["Timeline", "Operators", "Host"])
    await expect.poll(() => tabs.getByRole("button", { name }).count()).toBe(0);
  await expect.poll(() => frame.getByRole("region", { name: "Where the time went" }).count()).toBe(0);
  await frame.getByRole("button", { name: "Show the memory of" }).click();
  await frame.getByRole("region", { name: "Memory", exact: true }).waitFor();
  const run = frame.getByRole("combobox", { name: "Run" });
  await run.fill("snapshot");
  await frame.locator(".gd-option", { hasText: "CUDA memory snapshot" }).waitFor();
});

it("says what is wrong with a file, and keeps the others usable", async () => {
  const frame = await session.open(RUN);
  const run = frame.getByRole("combobox", { name: "Run" });
  // Typing after a click searches for another run.
  await run.click();
  await session.page.keyboard.type("bad");
  await frame.getByRole("option", { name: "bad" }).click();
  const problem = frame.getByRole("alert");
  await problem.waitFor();
  await expect.poll(() => problem.innerText()).toContain("cannot be diagnosed");
  await expect.poll(() => problem.innerText()).toContain(".pt.trace.json");
  await run.fill("healthy");
  await frame.getByRole("option", { name: "healthy" }).click();
  await frame.getByRole("region", { name: "Verdict" }).locator("h1", { hasText: "GPU computing" }).waitFor();
  await run.fill("bad");
  await frame.locator('.gd-option-note[data-state="failed"], .gd-option-note[data-state="partly"]').waitFor();
});

it("shows names as text, whatever they contain and however long they are", async () => {
  const frame = await session.openTimeline("hostile");
  await frame.locator(".gd-lanes").focus();
  await session.page.keyboard.press("n");
  const panel = frame.locator(".gd-gap");
  await panel.getByText("On the GPU after the gap").waitFor();
  await expect
    .poll(() => panel.locator(".gd-chain-name", { hasText: MARKUP.slice(0, 20) }).count())
    .toBeGreaterThan(0);
  await goTo(frame, "Summary");
  const figures = frame.getByRole("region", { name: "Where the time went" });
  await figures.waitFor();
  await expect.poll(() => figures.innerText()).toContain(MARKUP);
  await goTo(frame, "Operators");
  // The toolbar of the timeline shows the name of a row, too.
  await frame.getByRole("region", { name: "kernel family" }).locator("tr.gd-linked").first().click();
  await frame.locator(".gd-shown").waitFor();
  await expect
    .poll(() => widens(frame), { message: `a name of ${LONG.length} characters widens the page` })
    .toBe(false);
});

it("scrolls a wide table inside itself, never the page", async () => {
  await session.reportOf(RUN);
  await session.page.setViewportSize({ width: 860, height: 900 });
  const frame = await session.open(RUN, "host");
  const table = frame.getByRole("region", { name: "Launches" }).locator(".gd-wide").first();
  await table.waitFor();
  await expect.poll(() => table.evaluate((element) => element.scrollWidth > element.clientWidth)).toBe(true);
  await expect.poll(() => widens(frame)).toBe(false);
});
