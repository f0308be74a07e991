// Every view, in both themes: what axe finds, and whether narrow and wide windows are enough.

import type { Frame } from "playwright-core";
import { expect, it } from "vitest";
import type { ViewName } from "../../frontend/src/base/hash";
import { darken, violations } from "./axe";
import { openAlone } from "./browser";
import { Session } from "./session";

/** For each view, a run that has something to show in it, and what is there when it is complete. */
const VIEWS: Readonly<Record<ViewName, readonly [run: string, shown: string]>> = {
  runs: ["input_pipeline", "table tbody tr"],
  summary: ["leak_kept_graph", ".gd-verdict"],
  timeline: ["input_pipeline", ".gd-label"],
  operators: ["input_pipeline", "table tbody tr"],
  host: ["input_pipeline", "table tbody tr"],
  memory: ["leak_kept_graph", "canvas"],
  job: ["job", "table tbody tr"],
  history: ["again", "canvas"],
  compare: ["again", "table tbody tr"],
  recording: ["input_pipeline", "pre"],
};

const PHONE_PX = 390;

const session = new Session("several");

async function open(view: ViewName): Promise<Frame> {
  const [run, shown] = VIEWS[view];
  const { id } = await session.entryOf(run);
  const base = view === "compare" ? { base: (await session.entryOf("input_pipeline")).id } : {};
  const frame = await openAlone(session.page, session.tensorboard.url, { view, trace: id, ...base });
  await frame.locator(`main[data-view="${view}"]`).locator(shown).first().waitFor();
  return frame;
}

/** The elements that make the page wider than the window. */
function tooWide(frame: Frame): Promise<string[]> {
  return frame.evaluate(() => {
    const { scrollWidth, clientWidth } = document.documentElement;
    if (scrollWidth <= clientWidth) return [];
    const wide = [...document.body.querySelectorAll("*")].filter(
      (element) => element.getBoundingClientRect().right > clientWidth,
    );
    return wide.map((element) => element.outerHTML.slice(0, 120));
  });
}

for (const view of Object.keys(VIEWS) as ViewName[])
  it(`axe finds nothing in ${view}, light or dark, and no window is too narrow or too wide`, async () => {
    const frame = await open(view);
    expect(await violations(frame), "light").toEqual([]);
    for (const width of [PHONE_PX, 900, 2560, 1280]) {
      await session.page.setViewportSize({ width, height: 900 });
      await expect.poll(() => frame.evaluate(() => window.innerWidth)).toBe(width);
      await expect.poll(() => tooWide(frame), { message: `${width} pixels` }).toEqual([]);
      if (width === PHONE_PX) expect(await violations(frame, "target-size"), "phone").toEqual([]);
    }
    await darken(session.page, frame);
    // The themes differ in colors only.
    expect(await violations(frame, "color-contrast", "link-in-text-block"), "dark").toEqual([]);
  });

it("Compare without a base offers likely ones, on a phone, too", async () => {
  const { id } = await session.entryOf("healthy");
  await session.page.setViewportSize({ width: PHONE_PX, height: 844 });
  const frame = await openAlone(session.page, session.tensorboard.url, { view: "compare", trace: id });
  const likely = frame.getByRole("region", { name: "Compare with" });
  const again = likely.getByRole("listitem").filter({ hasText: "again" });
  await again.waitFor();
  expect(await violations(frame)).toEqual([]);
  await expect.poll(() => tooWide(frame)).toEqual([]);
  await again.getByRole("button").click();
  await frame.getByRole("region", { name: "Verdict" }).waitFor();
});

it("Host on a phone names what takes the time, and how long", async () => {
  const frame = await open("host");
  await session.page.setViewportSize({ width: PHONE_PX, height: 844 });
  const cells = frame.getByRole("region", { name: "Where host time went" }).locator("tbody tr").first();
  const right = async (cell: string) => {
    const box = await cells.locator(cell).first().boundingBox();
    return box ? box.x + box.width : Number.POSITIVE_INFINITY;
  };
  await expect.poll(() => right(".gd-name")).toBeGreaterThan(PHONE_PX / 3);
  await expect.poll(() => right(".gd-number")).toBeLessThan(PHONE_PX);
});
