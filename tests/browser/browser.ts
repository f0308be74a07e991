// A Chromium that records everything that must never happen on the page.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium, type BrowserContext, type Frame, type Page } from "playwright-core";

const FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

export interface Size {
  readonly width: number;
  readonly height: number;
}

export interface Browser {
  readonly context: BrowserContext;
  readonly close: () => Promise<void>;
}

export async function startBrowser(viewport: Size = { width: 1280, height: 900 }): Promise<Browser> {
  const profile = mkdtempSync(join(tmpdir(), "gpudiag-chromium-"));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: FLAGS,
    viewport,
    permissions: ["clipboard-read", "clipboard-write"],
  });
  return {
    context,
    close: async () => {
      await context.close();
      rmSync(profile, { recursive: true, force: true });
    },
  };
}

/** TensorBoard's own failures: its fonts under a path prefix, and the icon of a standalone plugin page. */
const NOT_OURS = /\/font-roboto\/|\/favicon\.ico$/;

export interface Watched {
  readonly page: Page;
  /** Everything that went wrong on the page so far. */
  readonly problems: readonly string[];
}

export async function openPage(context: BrowserContext): Promise<Watched> {
  const page = await context.newPage();
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

/** Open the Diagnosis tab of a TensorBoard and return its frame. */
export async function openTab(
  page: Page,
  url: string,
  link: Readonly<Record<string, string>> = {},
): Promise<Frame> {
  const tokens = Object.entries(link).map(([key, value]) => `&p.gpudiag.${key}=${encodeURIComponent(value)}`);
  await page.goto(`${url}#gpudiag${tokens.join("")}`);
  return tabFrame(page);
}

export async function tabFrame(page: Page): Promise<Frame> {
  const element = await page.waitForSelector('iframe[src*="name=gpudiag"]', {
    state: "attached",
  });
  const frame = await element.contentFrame();
  if (!frame) throw new Error("the Diagnosis tab has no frame");
  return frame;
}
