// One page per test file. The TensorBoard is shared, or the file's own.

import { rmSync } from "node:fs";
import type { Frame, Locator, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, inject, vi } from "vitest";
import type { ViewName } from "../../frontend/src/base/hash";
import type { Report, ReportState, TraceEntry, TraceList } from "../../frontend/src/wire/report";
import { openAlone, openPage, sharedContext, VIEWPORT, type Open, type Watched } from "./browser";
import { makeFolder, servedAt, startTensorBoard, type Served, type TensorBoard } from "./tensorboard";

/** Long enough for an analysis on a busy machine. */
const PATIENCE = { timeout: 200_000, interval: 200 };

/**
 * Bring a page back to how it was when it was new. A new one takes longer to start than most tests.
 */
async function forget(page: Page): Promise<void> {
  if (page.url() !== "about:blank")
    await page.evaluate(() => {
      localStorage.clear();
      sessionStorage.clear();
    });
  await page.unrouteAll();
  await page.goto("about:blank");
  await page.emulateMedia({ colorScheme: null });
  await page.setViewportSize(VIEWPORT);
}

/** A log directory of the tests of one file. */
export interface Filled {
  readonly fill: (logdir: string) => void;
  /** Runs that are analyzed before TensorBoard starts. */
  readonly analyzed: readonly string[];
}

export class Session {
  #served: Served | undefined;
  #watched: Watched | undefined;

  /**
   * Set up the tests of a file. Each test fails if anything goes wrong on its page.
   *
   * They use a shared TensorBoard (see shared.ts), or with a function that fills a log directory one of their own.
   */
  constructor(on: "shared" | "several" | ((logdir: string) => void) | Filled = "shared") {
    const logdir = typeof on === "string" ? undefined : makeFolder();
    const filled = typeof on === "function" ? { fill: on, analyzed: [] } : on;
    let own: TensorBoard | undefined;
    beforeAll(async () => {
      if (typeof filled === "string") this.#served = servedAt(inject(filled));
      else if (logdir) {
        filled.fill(logdir);
        this.#served = own = await startTensorBoard(logdir, filled);
      }
      this.#watched = await openPage(await sharedContext());
    });
    afterAll(async () => {
      await Promise.all([own?.stop(), this.#watched?.page.close()]);
      if (logdir) rmSync(logdir, { recursive: true, force: true });
    });
    beforeEach(() => {
      this.#watched?.problems.splice(0);
    });
    afterEach(async () => {
      await forget(this.page);
      expect(this.#watched?.problems).toEqual([]);
    });
  }

  get tensorboard(): Served {
    if (!this.#served) throw new Error("TensorBoard runs only within a test");
    return this.#served;
  }

  get page(): Page {
    if (!this.#watched) throw new Error("there is a page only within a test");
    return this.#watched.page;
  }

  async entryOf(run: string): Promise<TraceEntry> {
    return vi.waitFor(async () => {
      const { traces } = (await this.tensorboard.get("traces")) as TraceList;
      const found = traces.find((entry) => entry.run === run);
      if (!found) throw new Error(`${run} is not in the list of traces`);
      return found;
    }, PATIENCE);
  }

  /** Return the report of a run. Waits until its analysis is done. */
  async reportOf(run: string): Promise<Report> {
    const { id } = await this.entryOf(run);
    const answer = await vi.waitFor(async () => {
      const now = (await this.tensorboard.get(`report?id=${id}`)) as ReportState;
      if (now.state === "queued" || now.state === "running")
        throw new Error(`${run} is still ${now.state}: ${now.stage}`);
      return now;
    }, PATIENCE);
    if (!answer.report)
      throw new Error(`${run} is ${answer.state}: ${answer.error?.what ?? "no reason given"}`);
    return answer.report;
  }

  /** Open a view of a run: the page alone, or with `openTab` in TensorBoard. */
  async open(run: string, view: ViewName = "summary", open: Open = openAlone): Promise<Frame> {
    const { id } = await this.entryOf(run);
    return open(this.page, this.tensorboard.url, { view, trace: id });
  }

  async openTimeline(run: string): Promise<Frame> {
    const frame = await this.open(run, "timeline");
    await frame.locator(".gd-label").first().waitFor();
    await frame.locator(".gd-lanes canvas").scrollIntoViewIfNeeded();
    // The page gets the scroll event with the next frame.
    await frame.evaluate(
      () => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))),
    );
    return frame;
  }

  /** Wait until the URL's hash matches, and return it. */
  async untilHash(matches: (hash: string) => boolean): Promise<string> {
    await this.page.waitForURL(({ hash }) => matches(hash), { waitUntil: "commit" });
    return new URL(this.page.url()).hash;
  }
}

/** The timeline's section. The memory view has buttons with the same names. */
export function timelineOf(frame: Frame): Locator {
  return frame.getByRole("region", { name: "Timeline" });
}

/** Open the views of the page by their tabs. */
export async function goTo(frame: Frame, view: string): Promise<void> {
  await frame.getByRole("navigation", { name: "Views" }).getByRole("button", { name: view }).click();
}

/** The visible time in the timeline's toolbar, which appears once the lanes are drawn. */
export function shownTime(frame: Frame): Locator {
  return timelineOf(frame).locator(".gd-toolbar .gd-number");
}

export function widens(frame: Frame): Promise<boolean> {
  return frame.evaluate(() => document.documentElement.scrollWidth > window.innerWidth);
}
