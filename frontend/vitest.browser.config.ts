import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import type { Reporter } from "vitest/node";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** Names the tests that were tried twice, and counts them in the last line. */
const triedTwice: Reporter = {
  onTestRunEnd(modules) {
    const tests = modules.flatMap((module) => [...module.children.allTests()]);
    const twice = tests.filter((test) => test.diagnostic()?.retryCount);
    for (const test of twice)
      console.log(`  tried twice: ${test.module.relativeModuleId} > ${test.fullName}`);
    const ended = (state: string) => tests.filter((test) => test.result().state === state).length;
    const counts = `${ended("passed")} passed, ${ended("failed")} failed, ${twice.length} tried twice`;
    console.log(`Browser tests: ${counts}`);
  },
};

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
    // A machine that is busy with other jobs must not fail a build. No other tests have a second try.
    retry: process.env.CI ? 1 : 0,
    reporters: ["default", triedTwice],
    hookTimeout: 120_000,
    expect: { poll: { timeout: 20_000 } },
  },
});
