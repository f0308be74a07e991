/// <reference types="vitest/config" />
import react from "@vitejs/plugin-react";
import { readFileSync } from "node:fs";
import { defineConfig, type Plugin } from "vite";

// `npm run dev` shows the page alone, fed by a TensorBoard that runs at this address.
const tensorboard = process.env.TENSORBOARD ?? "http://localhost:6006";
const routes = ["traces", "report", "timeline", "memory", "gap", "cancel", "status"];

/** The font travels inside index.js, where the list of licences does not see it. */
function fontLicence(): Plugin {
  const source = () => readFileSync("node_modules/@fontsource-variable/inter/LICENSE", "utf8");
  return {
    name: "font-licence",
    generateBundle() {
      this.emitFile({ type: "asset", fileName: "font-license.txt", source: source() });
    },
  };
}

export default defineConfig({
  plugins: [react(), fontLicence()],
  // TensorBoard serves the page under any prefix: every address is relative.
  base: "./",
  build: {
    outDir: "../tb_gpudiag/static",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    // The font and the styles travel inside index.js: TensorBoard's page links no style sheet.
    assetsInlineLimit: 100_000,
    // React, the component library, the charts, their styles and the font: 265 kB compressed, fetched once from the
    // same machine.
    chunkSizeWarningLimit: 900,
    license: { fileName: "licenses.md" },
    rolldownOptions: {
      input: "src/index.tsx",
      // Without this the exported render() is dropped, and the tab stays blank.
      preserveEntrySignatures: "exports-only",
      output: { entryFileNames: "index.js", chunkFileNames: "[name]-[hash].js" },
    },
  },
  worker: { format: "es" },
  server: { proxy: { [`^/(${routes.join("|")})([?]|$)`]: { target: `${tensorboard}/data/plugin/gpudiag` } } },
  test: { environment: "happy-dom", include: ["src/**/*.test.{ts,tsx}"] },
});
