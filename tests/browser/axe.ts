// What axe finds on a page, in both themes.

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Frame, Page } from "playwright-core";
import { expect } from "vitest";

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

/** What axe finds by these of its rules, or by all, as "rule: element". */
export async function violations(frame: Frame, ...rules: string[]): Promise<string[]> {
  await frame.evaluate(AXE);
  return frame.evaluate(async (runOnly) => {
    const { axe } = window as unknown as { axe: Axe };
    const found = await axe.run({
      resultTypes: ["violations"],
      // What WCAG 2.2 asks: 24 pixels, or room around it. axe leaves it out unless told.
      ...(runOnly.length > 0 ? { runOnly } : { rules: { "target-size": { enabled: true } } }),
    });
    return found.violations.flatMap(({ id, nodes }) =>
      nodes.map(({ html }) => `${id}: ${html.slice(0, 160)}`),
    );
  }, rules);
}

/** Prefer the dark theme. */
export async function darken(page: Page, frame: Frame): Promise<void> {
  const background = () => frame.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  await page.emulateMedia({ colorScheme: "dark" });
  await expect.poll(background).not.toBe(light);
  // Colors that fade have no contrast for a moment.
  await frame.evaluate(() => {
    const fading = document.getAnimations().filter((animation) => animation instanceof CSSTransition);
    return Promise.allSettled(fading.map(({ finished }) => finished));
  });
}
