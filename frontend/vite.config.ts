/// <reference types="vitest/config" />
import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// `npm run dev` shows the page alone, fed by a TensorBoard that runs at this address.
const tensorboard = process.env.TENSORBOARD ?? "http://localhost:6006";
const routes = ["traces", "report", "timeline", "gap", "cancel", "status"];

export default defineConfig({
  plugins: [react()],
  // TensorBoard serves the page under any prefix: every address is relative.
  base: "./",
  build: {
    outDir: "../tb_gpudiag/static",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    // The font and the styles travel inside index.js: TensorBoard's page links no style sheet.
    assetsInlineLimit: 100_000,
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
