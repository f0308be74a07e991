/// <reference types="vitest/config" />
import react from "@vitejs/plugin-react";
import { readFileSync, writeFileSync } from "node:fs";
import { defineConfig, type Plugin } from "vite";
import { sourcesLine } from "./sources.ts";

// `npm run dev` serves the page standalone, with data from a TensorBoard at this URL.
const tensorboard = process.env.TENSORBOARD ?? "http://localhost:6006";
const callRoutes = ["operators", "kernels", "calls", "callTree", "roofline", "memoryState", "segments"];
const timelineRoutes = ["timeline", "memory", "gap", "find", "event", "range"];
const traceRoutes = ["report", ...timelineRoutes, "export", "job", "history", "compare", "cancel"];
const routes = ["traces", "runs", "rule", "status", ...traceRoutes, ...callRoutes];

/** Add the font's license: the font is inside index.js, so the list of licenses does not include it. */
function fontLicense(): Plugin {
  const source = () => readFileSync("node_modules/@fontsource-variable/inter/LICENSE", "utf8");
  return {
    name: "font-license",
    generateBundle() {
      this.emitFile({ type: "asset", fileName: "font-license.txt", source: source() });
    },
  };
}

/** Add a license text that is missing in a package: its author's other package, which uses it, has the same. */
function missingLicense(): Plugin {
  return {
    name: "missing-license",
    writeBundle({ dir = "" }) {
      const file = `${dir}/licenses.md`;
      const text = readFileSync("node_modules/react-remove-scroll/LICENSE", "utf8");
      const listed = readFileSync(file, "utf8");
      writeFileSync(file, listed.replace(/^## react-remove-scroll-bar .*\n(?=\n##)/m, `$&\n${text}`));
    },
  };
}

/** Say in index.js which sources it was built from. */
function sources(): Plugin {
  return {
    name: "sources",
    writeBundle({ dir = "" }) {
      const file = `${dir}/index.js`;
      writeFileSync(file, sourcesLine() + readFileSync(file, "utf8"));
    },
  };
}

export default defineConfig({
  plugins: [react(), fontLicense(), missingLicense(), sources()],
  // TensorBoard can serve the page under any prefix, so every URL is relative.
  base: "./",
  build: {
    outDir: "../tb_gpudiag/static",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    // The font and the styles are inside index.js, because TensorBoard's page links no style sheet.
    assetsInlineLimit: 100_000,
    // React, the component library, their styles and the font: 270 kB compressed, loaded once, usually
    // from the same machine.
    chunkSizeWarningLimit: 900,
    license: { fileName: "licenses.md" },
    rolldownOptions: {
      input: "src/index.tsx",
      // Without this the build drops the exported render(), and the tab stays blank.
      preserveEntrySignatures: "exports-only",
      output: {
        entryFileNames: "index.js",
        chunkFileNames: "[name]-[hash].js",
        // Without groups, each pair of views that share a module gets a file for it.
        codeSplitting: {
          groups: [
            {
              name: "libraries",
              test: /node_modules\/(react|react-dom|scheduler|@mantine|@floating-ui|@tanstack|zustand)\//,
            },
            { name: "shared", test: /\/src\//, minShareCount: 2 },
          ],
        },
      },
    },
  },
  worker: { format: "es" },
  server: { proxy: { [`^/(${routes.join("|")})([?]|$)`]: { target: `${tensorboard}/data/plugin/gpudiag` } } },
  test: {
    environment: "happy-dom",
    include: ["src/**/*.test.{ts,tsx}"],
    setupFiles: ["vitest.setup.ts"],
    isolate: false, // all files share what they import: that takes a fifth of the time
    testTimeout: 120_000, // ends what hangs: a busy machine takes long
  },
});
