// The HTML file with the interactive page inside, opened from disk: no server, no request.

import { execFileSync } from "node:child_process";
import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, inject, test } from "vitest";
import { sharedContext } from "./browser";
import { makeFolder, PROJECT, PYTHON } from "./tensorboard";

const folder = makeFolder();
const file = join(folder, "report.html");
let page: Page;
const problems: string[] = [];

beforeAll(async () => {
  const run = join(inject("severalLogdir"), "input_pipeline");
  const path = join(run, readdirSync(run)[0] ?? "");
  execFileSync(PYTHON, ["-m", "tb_gpudiag", "diagnose", path, "--format", "html", "-o", file], {
    cwd: PROJECT,
  });
  page = await (await sharedContext()).newPage();
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) problems.push(message.text());
  });
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("request", (request) => {
    if (request.url() !== pathToFileURL(file).href) problems.push(`requested ${request.url()}`);
  });
});

/** Go to a view by the URL. All tests use one page: a file takes longer to load than a page of TensorBoard. */
async function goTo(view: string): Promise<void> {
  await page.goto(`${pathToFileURL(file).href}#gpudiag&p.gpudiag.view=${view}`);
}

afterAll(async () => {
  await page.close();
  rmSync(folder, { recursive: true, force: true });
});

afterEach(() => {
  expect(problems.splice(0)).toEqual([]);
});

test("every view opens from disk, and views about other traces are absent", async () => {
  await goTo("timeline");
  await page.locator(".gd-label").first().waitFor();
  await page.goto("about:blank");
  await page.goto(pathToFileURL(file).href);
  await page.getByText("Data loading keeps the GPU idle").first().waitFor();
  const tabs = page.getByRole("navigation", { name: "Views" }).getByRole("button");
  await expect
    .poll(() => tabs.allTextContents())
    .toEqual(["Summary", "Timeline", "Operators", "Host", "Memory", "Recording"]);
  for (const view of ["Timeline", "Operators", "Memory", "Recording", "Summary"]) {
    await tabs.filter({ hasText: view }).click();
    await page.getByRole("heading").first().waitFor();
  }
});

test("tables of operators are there, and what is not says so", async () => {
  await goTo("operators");
  await page.getByRole("textbox", { name: "Filter the table by name" }).fill("ADDMM");
  const row = page.getByRole("region", { name: "Operators" }).getByText("aten::addmm").first();
  await row.click();
  await page.getByText("This file does not include the details of a row.").waitFor();
});

test("allocations over time are there as bands, and each says what it is", async () => {
  await goTo("memory");
  const bands = page.getByRole("region", { name: "Blocks over time" });
  await bands.getByText("Each band is an allocation").waitFor();
  const stage = bands.locator(".gd-bands-stage");
  const { width = 0, height = 0 } = (await stage.boundingBox()) ?? {};
  await stage.hover({ position: { x: width / 2, y: height - 3 } });
  await expect.poll(() => bands.locator(".gd-bands-line").innerText()).not.toContain("Each band");
  expect(await bands.innerText()).not.toContain("zoom in");
});

test("events are found and explained, and a range has statistics", async () => {
  await goTo("timeline");
  await page.locator(".gd-label").first().waitFor();
  const field = page.getByRole("textbox", { name: "Find events by name" });
  await field.fill("gemm");
  await page.getByText(/[1-9]\d* found/).waitFor();
  await field.press("Enter");
  const event = page.getByRole("complementary", { name: "Selected event" });
  await event.getByText("Launched by").waitFor();
  await event.getByRole("button", { name: "Statistics of this range" }).click();
  const range = page.getByRole("complementary", { name: "Selected range" });
  await range.getByText("Computing").waitFor();
  await range.getByText("Operators", { exact: true }).click();
  await range.getByText("aten::").first().waitFor();
  await page.getByRole("button", { name: "Regular expression" }).click();
  await field.fill("(gemm");
  await page.getByRole("search").getByText("Not a valid regular expression").waitFor();
});

test("the timeline zooms, a gap and a rule's page open", async () => {
  await goTo("timeline");
  await page.locator(".gd-label").first().waitFor();
  await page.getByRole("button", { name: /^Zoom in/ }).click();
  await page.getByRole("button", { name: /^Longest gap/ }).click();
  await page.getByRole("complementary", { name: "Selected gap" }).getByText("Gap of").waitFor();
  await page.getByRole("button", { name: "Summary", exact: true }).click();
  await page.getByRole("button", { name: /GD101/ }).first().click();
  await page.getByText("How it is measured").waitFor();
});
