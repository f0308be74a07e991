/** @type {import("dependency-cruiser").IConfiguration} */
export default {
  forbidden: [{ name: "no-cycles", severity: "error", from: {}, to: { circular: true } }],
  options: {
    doNotFollow: { path: "node_modules" },
    tsConfig: { fileName: "tsconfig.json" },
    // A cycle of type imports couples modules just as well.
    tsPreCompilationDeps: true,
  },
};
