// `npm run shots`: screenshots of the tab in both themes and two sizes. LOGDIR may name a log directory.

import { mkdirSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Frame, Page } from "playwright-core";
import { expect, it } from "vitest";
import type { ViewName } from "../../frontend/src/base/hash";
import type { TraceEntry, TraceList } from "../../frontend/src/wire/report";
import { openContext, openPage, openTab, tabFrame, type Size } from "./browser";
import { makeFolder, simulate, startTensorBoard, write, type TensorBoard } from "./tensorboard";

const SHOTS = fileURLToPath(new URL("shots", import.meta.url));
const SIZES: readonly Size[] = [
  { width: 1280, height: 900 },
  { width: 1920, height: 1080 },
];
const THEMES = ["light", "dark"] as const;

async function settled(frame: Frame): Promise<void> {
  await frame.locator(".gd-card, .gd-problem, .gd-empty").first().waitFor({ timeout: 120_000 });
  await frame.locator('.gd-analyzing, .gd-waiting, [aria-label="Loading"]').waitFor({ state: "detached" });
}

async function scanned(tensorboard: TensorBoard): Promise<TraceList> {
  for (;;) {
    const list = (await tensorboard.get("traces")) as TraceList;
    if (list.scanned) return list;
  }
}

interface Shot {
  readonly view: ViewName;
  /** What to do there before the screenshot. */
  readonly show: (frame: Frame) => Promise<void>;
}

const nothing = () => Promise.resolve();

const SHOTS_OF_TRACE: Readonly<Record<string, Shot>> = {
  summary: { view: "summary", show: nothing },
  finding: {
    view: "summary",
    show: async (frame) => {
      await frame.getByRole("button", { name: "Evidence, all places and code" }).click();
    },
  },
  rule: {
    view: "summary",
    show: async (frame) => {
      await frame.locator(".gd-explain").first().click();
      await frame.getByRole("heading", { name: "Known limits" }).waitFor();
    },
  },
  gap: {
    view: "timeline",
    show: async (frame) => {
      await frame.getByRole("button", { name: "Longest gap (n)" }).click();
      await frame.locator(".gd-chain").waitFor();
    },
  },
  operators: { view: "operators", show: nothing },
  host: { view: "host", show: nothing },
  memory: { view: "memory", show: nothing },
  recording: { view: "recording", show: nothing },
};

async function takeShots(page: Page, url: string, { id, run }: TraceEntry, suffix: string): Promise<void> {
  for (const [name, { view, show }] of Object.entries(SHOTS_OF_TRACE)) {
    await openTab(page, url, { view, trace: id });
    // Only the hash has changed. Reload, so that the screenshot shows a page that was just opened.
    await page.reload();
    const frame = await tabFrame(page);
    await settled(frame);
    const failed = (await frame.locator(".gd-problem").count()) > 0;
    if (!failed && (view !== "summary" || (await frame.locator(".gd-first").count()) > 0)) {
      await show(frame);
      await settled(frame);
    }
    await page.screenshot({ path: `${SHOTS}/${run.replaceAll("/", "-")}-${name}-${suffix}.png` });
    if (failed) return;
  }
}

async function takeAllShots(url: string, traces: readonly TraceEntry[], size: Size): Promise<string[]> {
  const all: string[] = [];
  const context = await openContext(size);
  for (const theme of THEMES) {
    const { page, problems } = await openPage(context);
    await page.addInitScript((wanted) => {
      localStorage.setItem("_tb_global_settings", JSON.stringify({ theme: wanted }));
    }, theme);
    for (const entry of traces) await takeShots(page, url, entry, `${theme}-${size.width}`);
    all.push(...problems);
    await page.close();
  }
  await context.close();
  return all;
}

it("takes screenshots without problems on the page", { timeout: 600_000 }, async () => {
  const own = makeFolder();
  if (!process.env.LOGDIR) {
    simulate(own, "input_pipeline", "launch_bound", "healthy");
    write(own, "bad/words.1.pt.trace.json", "not a trace");
  }
  mkdirSync(SHOTS, { recursive: true });
  const tensorboard = await startTensorBoard(process.env.LOGDIR ?? own);
  const { traces } = await scanned(tensorboard);
  const problems: string[] = [];
  for (const size of SIZES) problems.push(...(await takeAllShots(tensorboard.url, traces, size)));
  await tensorboard.stop();
  rmSync(own, { recursive: true, force: true });
  expect(problems).toEqual([]);
});
