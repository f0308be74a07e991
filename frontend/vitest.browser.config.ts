import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import type { Reporter } from "vitest/node";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** Counts the tests in the last line. */
const counts: Reporter = {
  onTestRunEnd(modules) {
    const results = modules.flatMap((module) =>
      [...module.children.allTests()].map((test) => test.result().state),
    );
    const ended = (state: string) => results.filter((result) => result === state).length;
    console.log(`Browser tests: ${ended("passed")} passed, ${ended("failed")} failed`);
  },
};

const { SHOTS, TESTS } = process.env;
const alone = SHOTS ? "shots.ts" : TESTS === "torch" ? "torch/*.test.ts" : null;

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
    include: [alone ?? "*.test.ts"],
    environment: "node",
    globalSetup: alone ? [] : ["shared.ts"],
    fileParallelism: false, // they share a Chromium
    isolate: false,
    // They end what hangs: a busy machine takes long.
    testTimeout: 600_000,
    reporters: ["default", counts],
    hookTimeout: 600_000,
    expect: { poll: { timeout: 200_000 } },
  },
});
