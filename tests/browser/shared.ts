// Vitest's global setup: two TensorBoards for most test files, which analyze each trace once.

import { readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import { sourcesLine } from "../../frontend/sources";
import {
  copyRuns,
  makeFolder,
  PROJECT,
  repeat,
  settle,
  simulate,
  simulateJob,
  startTensorBoard,
  write,
  writeSnapshot,
} from "./tensorboard";
import { hostile, manyGpus, MARKUP, withMemory } from "./traces";

declare module "vitest" {
  interface ProvidedContext {
    /** URL of the TensorBoard for views of one trace. */
    readonly shared: string;
    /** URL of the TensorBoard for views of several, and its log directory. */
    readonly several: string;
    readonly severalLogdir: string;
  }
}

/** No test opens the runs of this log directory as a table: that would analyze all of them. */
function fill(logdir: string): void {
  simulate(
    logdir,
    "input_pipeline",
    "healthy",
    "launch_bound",
    "host_sync",
    "queued",
    "leak",
    "leak_kept_graph",
  );
  // Of an H200, with shapes: the others have no MFU.
  copyRuns(join(PROJECT, "tests/truth/gpu/recorded/matmuls_in_tf32"), logdir, "before");
  write(logdir, "bad/words.1.pt.trace.json", "not a trace");
  write(logdir, "bad/other.1.pt.trace.json", '{"hello": "world"}');
  writeSnapshot(logdir, "snapshot");
  write(logdir, "hostile/w.1.pt.trace.json", hostile());
  write(logdir, "hostile_memory/w.1.pt.trace.json", withMemory(MARKUP));
  write(logdir, "without/w.1.pt.trace.json", withMemory(null));
  write(logdir, "many/w.1.pt.trace.json", manyGpus(12));
}

/** All but those with which tests watch an analysis. */
const ANALYZED = [
  "input_pipeline",
  "healthy",
  "host_sync",
  "leak",
  "before",
  "snapshot",
  "hostile",
  "hostile_memory",
  "without",
  "many",
];

export const RANKS = 3;

/** Tests may open the runs of this log directory as a table. */
function fillSeveral(logdir: string, filled: string): void {
  copyRuns(filled, logdir, "input_pipeline", "healthy", "leak_kept_graph");
  simulateJob(logdir, "job", RANKS);
  repeat(logdir, "healthy", "again", 3);
}

const SEVERAL_ANALYZED = ["input_pipeline", "healthy", "leak_kept_graph", "job", "again"];

/** Tests of another page than that of the sources fail, or pass, for no reason that anyone finds in the sources. */
function refuseStalePage(): void {
  const bundle = readFileSync(join(PROJECT, "tb_gpudiag/static/index.js"), "utf8");
  if (!bundle.startsWith(sourcesLine()))
    throw new Error("tb_gpudiag/static was not built from these sources: cd frontend && npm run build");
}

export default async function setup({ provide }: TestProject): Promise<() => Promise<void>> {
  refuseStalePage();
  const folders = [makeFolder(), makeFolder()] as const;
  const [one, several] = folders;
  fill(one);
  fillSeveral(several, one);
  for (const folder of folders) settle(folder);
  const tensorboards = await Promise.all([
    startTensorBoard(one, { analyzed: ANALYZED }),
    startTensorBoard(several, { analyzed: SEVERAL_ANALYZED }),
  ]);
  provide("shared", tensorboards[0].url);
  provide("several", tensorboards[1].url);
  provide("severalLogdir", several);
  return async () => {
    await Promise.all(tensorboards.map((tensorboard) => tensorboard.stop()));
    for (const folder of folders) rmSync(folder, { recursive: true, force: true });
  };
}
