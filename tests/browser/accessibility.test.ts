// Every view, in both themes: what axe finds, and whether narrow and wide windows are enough.

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Frame } from "playwright-core";
import { expect, it } from "vitest";
import type { ViewName } from "../../frontend/src/base/hash";
import { openAlone } from "./browser";
import { Session } from "./session";

const AXE = readFileSync(
  fileURLToPath(new URL("../../frontend/node_modules/axe-core/axe.min.js", import.meta.url)),
  "utf8",
);

interface Axe {
  readonly run: (options: object) => Promise<{
    readonly violations: readonly {
      readonly id: string;
      readonly nodes: readonly { readonly html: string }[];
    }[];
  }>;
}

/** For each view, a run that has something to show in it, and what is there when it is complete. */
const VIEWS: Readonly<Record<ViewName, readonly [run: string, shown: string]>> = {
  runs: ["input_pipeline", "table tbody tr"],
  summary: ["leak_kept_graph", ".gd-finding, .gd-verdict"],
  timeline: ["input_pipeline", ".gd-label"],
  operators: ["input_pipeline", "table tbody tr"],
  memory: ["leak_kept_graph", "canvas"],
  job: ["job", "table tbody tr"],
  history: ["again", "canvas"],
  compare: ["again", "table tbody tr"],
  recording: ["input_pipeline", "pre"],
};

const session = new Session("several");

async function open(view: ViewName): Promise<Frame> {
  const [run, shown] = VIEWS[view];
  const { id } = await session.entryOf(run);
  const base = view === "compare" ? { base: (await session.entryOf("input_pipeline")).id } : {};
  const frame = await openAlone(session.page, session.tensorboard.url, { view, trace: id, ...base });
  await frame.locator(`main[data-view="${view}"]`).locator(shown).first().waitFor({ timeout: 55_000 });
  return frame;
}

/** Prefer the dark theme. */
async function darken(frame: Frame): Promise<void> {
  const background = () => frame.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  await session.page.emulateMedia({ colorScheme: "dark" });
  await expect.poll(background).not.toBe(light);
  // Colors that fade have no contrast for a moment.
  await frame.evaluate(() => {
    const fading = document.getAnimations().filter((animation) => animation instanceof CSSTransition);
    return Promise.allSettled(fading.map(({ finished }) => finished));
  });
}

/** What axe finds by these of its rules, or by all, as "rule: element". */
async function violations(frame: Frame, ...rules: string[]): Promise<string[]> {
  await frame.evaluate(AXE);
  return frame.evaluate(async (runOnly) => {
    const { axe } = window as unknown as { axe: Axe };
    const found = await axe.run({ resultTypes: ["violations"], ...(runOnly.length > 0 && { runOnly }) });
    return found.violations.flatMap(({ id, nodes }) =>
      nodes.map(({ html }) => `${id}: ${html.slice(0, 160)}`),
    );
  }, rules);
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
    for (const width of [900, 2560, 1280]) {
      await session.page.setViewportSize({ width, height: 900 });
      await expect.poll(() => frame.evaluate(() => window.innerWidth)).toBe(width);
      await expect.poll(() => tooWide(frame), { message: `${width} pixels` }).toEqual([]);
    }
    await darken(frame);
    // The themes differ in colors only.
    expect(await violations(frame, "color-contrast", "link-in-text-block"), "dark").toEqual([]);
  });
