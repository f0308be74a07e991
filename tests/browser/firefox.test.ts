// A smoke test in a real Firefox: every view of a trace opens, is drawn, and says nothing in the console.

import { launch, type Browser, type Frame, type Page } from "puppeteer-core";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import type { TraceList } from "../../frontend/src/wire/report";
import { servedAt } from "./tensorboard";

/** What each view shows when it is complete. */
const VIEWS = {
  summary: ".gd-finding",
  timeline: ".gd-label",
  operators: "table tbody tr",
  memory: "main[data-view=memory] h2, main[data-view=memory] details",
  recording: "pre",
} as const;

describe.skipIf(!process.env.FIREFOX)("in Firefox", () => {
  let browser: Browser;
  let page: Page;
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
  });

  afterAll(async () => {
    await browser.close();
  });

  async function open(view: string): Promise<Frame> {
    const served = servedAt(inject("shared"));
    const { traces } = (await served.get("traces")) as TraceList;
    const id = traces.find(({ run }) => run === "input_pipeline")?.id ?? "";
    await page.goto("about:blank");
    await page.goto(`${served.url}#gpudiag&p.gpudiag.trace=${id}&p.gpudiag.view=${view}`);
    const element = await page.waitForSelector('iframe[src*="name=gpudiag"]');
    const frame = await element?.contentFrame();
    if (!frame) throw new Error("the Diagnosis tab has no frame");
    return frame;
  }

  it.each(Object.entries(VIEWS))("shows the view %s", async (view, shown) => {
    const frame = await open(view);
    await frame.waitForSelector(shown, { timeout: 60_000 });
    expect(problems).toEqual([]);
  });

  it("draws the timeline, and zooms with the keyboard", async () => {
    const frame = await open("timeline");
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
