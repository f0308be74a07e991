// A Chromium that records everything that must never happen on the page.

import { chromium, type Browser, type BrowserContext, type Frame, type Page } from "playwright-core";

const FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  // No page lives long enough to profit from optimized code.
  "--js-flags=--no-turbofan,--no-maglev",
];

export interface Size {
  readonly width: number;
  readonly height: number;
}

export const VIEWPORT: Size = { width: 1280, height: 900 };

let running: Promise<Browser> | undefined;

/** Chromium, the same for all test files: starting it takes longer than most tests. It ends with their process. */
function browser(): Promise<Browser> {
  return (running ??= chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: FLAGS,
  }));
}

/** Open a context with a profile of its own: storage, permissions, and what Chromium has cached and compiled. */
export async function openContext(viewport = VIEWPORT): Promise<BrowserContext> {
  return (await browser()).newContext({
    viewport,
    permissions: ["clipboard-read", "clipboard-write"],
    timezoneId: "UTC", // dates are shown as the reader's, wherever the tests run
  });
}

let shared: Promise<BrowserContext> | undefined;

/** The context of all test files, for which Chromium compiles TensorBoard's page once. */
export function sharedContext(): Promise<BrowserContext> {
  return (shared ??= openContext());
}

/** Most waits are for an analysis, on a machine that is busy with other tests. */
const PATIENCE_MS = 200_000;

/** TensorBoard's own failures: its fonts under a path prefix, and the icon of a standalone plugin page. */
const NOT_OURS = /\/font-roboto\/|\/favicon\.ico$/;

export interface Watched {
  readonly page: Page;
  /** Everything that went wrong on the page so far. */
  readonly problems: string[];
}

export async function openPage(context: BrowserContext): Promise<Watched> {
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  const problems: string[] = [];
  page.on("console", (message) => {
    const { url } = message.location();
    if (message.type() === "error" && !NOT_OURS.test(url))
      problems.push(`console: ${message.text()} (${url})`);
  });
  page.on("pageerror", (error) => problems.push(`page error: ${error.message}`));
  page.on("dialog", (dialog) => {
    problems.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("response", (response) => {
    if (response.status() >= 400 && !NOT_OURS.test(response.url()))
      problems.push(`${response.status()}: ${response.url()}`);
  });
  await page.exposeFunction("gpudiagViolation", (what: string) => problems.push(`security policy: ${what}`));
  await page.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) => {
      const notify = (window as unknown as { gpudiagViolation: (what: string) => void }).gpudiagViolation;
      notify(`${event.violatedDirective} ${event.blockedURI}`);
    });
  });
  return { page, problems };
}

type Link = Readonly<Record<string, string>>;

export type Open = (page: Page, url: string, link?: Link) => Promise<Frame>;

const ALONE = "data/plugin_entry.html?name=gpudiag";

function hashOf(link: Link): string {
  const tokens = Object.entries(link).map(([key, value]) => `&p.gpudiag.${key}=${encodeURIComponent(value)}`);
  return `#gpudiag${tokens.join("")}`;
}

/** Open the Diagnosis tab of a TensorBoard and return its frame. */
export const openTab: Open = async (page, url, link = {}) => {
  await page.goto(`${url}${hashOf(link)}`);
  return tabFrame(page);
};

/**
 * Open what TensorBoard serves as the tab, alone: the same page, whose hash is its own URL's. Loading TensorBoard's
 * page around it takes longer than most tests.
 */
export const openAlone: Open = async (page, url, link = {}) => {
  await page.goto(`${url}${ALONE}${hashOf(link)}`);
  return page.mainFrame();
};

/** Return the frame of the Diagnosis tab, wherever it is: in TensorBoard, or alone. */
export async function tabFrame(page: Page): Promise<Frame> {
  if (page.url().includes(ALONE)) return page.mainFrame();
  const element = await page.waitForSelector('iframe[src*="name=gpudiag"]', {
    state: "attached",
  });
  const frame = await element.contentFrame();
  if (!frame) throw new Error("the Diagnosis tab has no frame");
  return frame;
}
