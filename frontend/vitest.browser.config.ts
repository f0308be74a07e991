import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

// The browser tests are among Python's tests, outside of the lookup path of node_modules.
export default defineConfig({
  root: here("../tests/browser"),
  resolve: {
    alias: {
      "playwright-core": here("node_modules/playwright-core/index.mjs"),
      "puppeteer-core": here("node_modules/puppeteer-core/lib/esm/puppeteer/puppeteer-core.js"),
      vitest: here("node_modules/vitest"),
    },
  },
  test: {
    include: [process.env.SHOTS ? "shots.ts" : "*.test.ts"],
    environment: "node",
    globalSetup: process.env.SHOTS ? [] : ["shared.ts"],
    fileParallelism: false, // they share a Chromium
    isolate: false,
    testTimeout: 120_000,
    // A machine that is busy with other jobs must not fail a build. A second try is printed.
    retry: process.env.CI ? 1 : 0,
    hookTimeout: 120_000,
    expect: { poll: { timeout: 20_000 } },
  },
});
