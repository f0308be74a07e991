// `npm run shots`: pictures of the tab in both themes and two sizes, to be looked at. LOGDIR may name a log directory.

import { mkdirSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Frame } from "playwright-core";
import { expect, it } from "vitest";
import type { TraceList } from "../../frontend/src/wire/report";
import { openPage, openTab, startBrowser, tabFrame } from "./browser";
import { makeFolder, simulate, startTensorBoard, write, type TensorBoard } from "./tensorboard";

const SHOTS = fileURLToPath(new URL("shots", import.meta.url));
const SIZES = [
  { width: 1280, height: 900 },
  { width: 1920, height: 1080 },
];

async function settled(frame: Frame): Promise<void> {
  await frame.locator(".gd-label, .gd-problem, .gd-empty").first().waitFor({ timeout: 120_000 });
  await frame.locator('.gd-timeline .gd-toolbar [aria-label="Loading"]').waitFor({ state: "detached" });
}

async function scanned(tensorboard: TensorBoard): Promise<TraceList> {
  for (;;) {
    const list = (await tensorboard.ask("traces")) as TraceList;
    if (list.scanned) return list;
  }
}

/** What is opened on the page before its picture is taken. */
const VIEWS: Record<string, (frame: Frame) => Promise<void>> = {
  top: () => Promise.resolve(),
  finding: async (frame) => {
    await frame.locator(".gd-finding-head").first().click();
  },
  gap: async (frame) => {
    await frame.getByRole("button", { name: "Longest gap (n)" }).click();
    await frame.locator(".gd-chain").waitFor();
    await frame.locator(".gd-timeline").evaluate((section) => {
      section.scrollIntoView({ block: "start" });
    });
  },
};

it("takes pictures", { timeout: 600_000 }, async () => {
  const own = makeFolder();
  if (!process.env.LOGDIR) {
    simulate(own, "input_pipeline", "launch_bound", "healthy");
    write(own, "bad/words.1.pt.trace.json", "this is no trace");
  }
  mkdirSync(SHOTS, { recursive: true });
  const tensorboard = await startTensorBoard(process.env.LOGDIR ?? own);
  const { traces } = await scanned(tensorboard);
  const problems: string[] = [];
  for (const size of SIZES) {
    const { context, close } = await startBrowser(size);
    for (const theme of ["light", "dark"]) {
      const { page, wrongs } = await openPage(context);
      await page.addInitScript((wanted) => {
        localStorage.setItem("_tb_global_settings", JSON.stringify({ theme: wanted }));
      }, theme);
      for (const { id, run } of traces) {
        await openTab(page, tensorboard.url, { trace: id });
        // Only the hash has changed: a picture is of a page as it is when it is opened.
        await page.reload();
        const frame = await tabFrame(page);
        await settled(frame);
        for (const [view, show] of Object.entries(VIEWS)) {
          if (view !== "top" && (await frame.locator(".gd-finding").count()) === 0) continue;
          await show(frame);
          await settled(frame);
          const name = `${run.replaceAll("/", "-")}-${view}-${theme}-${size.width}.png`;
          await page.screenshot({ path: `${SHOTS}/${name}` });
        }
      }
      problems.push(...wrongs);
      await page.close();
    }
    await close();
  }
  await tensorboard.stop();
  rmSync(own, { recursive: true, force: true });
  expect(problems).toEqual([]);
});
