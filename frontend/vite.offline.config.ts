import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// The page as one script, for HTML files that open without a server. Built after vite.config.ts, next to its files.
export default defineConfig({
  plugins: [react()],
  base: "./",
  build: {
    outDir: "../tb_gpudiag/static",
    emptyOutDir: false,
    target: "es2022",
    modulePreload: false,
    assetsInlineLimit: 1_000_000,
    chunkSizeWarningLimit: 1500,
    rolldownOptions: {
      input: "src/offline.tsx",
      // Vite leaves import.meta.url in imports that this build inlines; nothing reads it.
      transform: { define: { "import.meta": "{}" } },
      output: { format: "iife", entryFileNames: "offline.js", codeSplitting: false },
    },
  },
});
