// A smoke test in a real Firefox: every view of a trace opens, is drawn, and says nothing in the console.

import { launch, type Browser, type Frame, type Page } from "puppeteer-core";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import type { TraceList } from "../../frontend/src/wire/report";
import { servedAt } from "./tensorboard";

/** What each view shows when it is complete. */
const VIEWS = {
  Summary: ".gd-verdict",
  Timeline: ".gd-label",
  Operators: "table tbody tr",
  Host: "table tbody tr",
  Memory: "main[data-view=memory] h2, main[data-view=memory] details",
  Recording: "pre",
} as const;

describe.skipIf(!process.env.FIREFOX)("in Firefox", () => {
  let browser: Browser;
  let page: Page;
  let tab: Frame;
  const problems: string[] = [];

  beforeAll(async () => {
    browser = await launch({
      browser: "firefox",
      executablePath: process.env.FIREFOX ?? "",
      headless: true,
      defaultViewport: { width: 1280, height: 900 },
    });
    page = await browser.newPage();
    page.on("pageerror", (error) => problems.push(String(error)));
    page.on("console", (message) => {
      // TensorBoard's own page logs warnings.
      if (message.type() === "error" && !message.text().includes("font-roboto"))
        problems.push(message.text());
    });
    tab = await openTab();
  });

  afterAll(async () => {
    await browser.close();
  });

  async function openTab(): Promise<Frame> {
    const served = servedAt(inject("shared"));
    const { traces } = (await served.get("traces")) as TraceList;
    const id = traces.find(({ run }) => run === "input_pipeline")?.id ?? "";
    await page.goto(`${served.url}#gpudiag&p.gpudiag.trace=${id}&p.gpudiag.view=timeline`);
    const element = await page.waitForSelector('iframe[src*="name=gpudiag"]');
    const frame = await element?.contentFrame();
    if (!frame) throw new Error("the Diagnosis tab has no frame");
    return frame;
  }

  /** Go to a view as a user does. TensorBoard's own page, around it, takes seconds to load. */
  async function goTo(view: string): Promise<Frame> {
    const button = await tab.waitForSelector(
      `::-p-xpath(//nav[@aria-label="Views"]//button[normalize-space()="${view}"])`,
    );
    await button?.click();
    return tab;
  }

  it.each(Object.entries(VIEWS))("shows the view %s", async (view, shown) => {
    const frame = await goTo(view);
    await frame.waitForSelector(shown, { timeout: 200_000 });
    expect(problems).toEqual([]);
  });

  it("draws the timeline, and zooms with the keyboard", async () => {
    const frame = await goTo("Timeline");
    await frame.waitForSelector(".gd-label");
    const colors = () =>
      frame.$eval(".gd-lanes canvas", (element) => {
        const canvas = element;
        const { data } = canvas.getContext("2d")?.getImageData(0, 0, canvas.width, canvas.height) ?? {};
        return new Set(data).size;
      });
    await expect.poll(colors).toBeGreaterThan(20);
    await frame.focus(".gd-lanes");
    await page.keyboard.press("w");
    await expect.poll(() => page.url()).toContain("t0=");
    expect(problems).toEqual([]);
  });
});
