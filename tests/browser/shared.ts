// Vitest's global setup: two TensorBoards for most test files, and one profile for all browsers. The traces are
// analyzed once, and Chromium compiles TensorBoard's page once.

import { rmSync } from "node:fs";
import type { TestProject } from "vitest/node";
import {
  makeFolder,
  repeat,
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
    /** Folder of the browsers' profile. One browser at a time. */
    readonly profile: string;
  }
}

/** No test opens the runs of this log directory as a table: that would analyze all of them. */
function fill(logdir: string): void {
  simulate(logdir, "input_pipeline", "healthy", "launch_bound", "host_sync", "queued", "leak");
  write(logdir, "bad/words.1.pt.trace.json", "not a trace");
  write(logdir, "bad/other.1.pt.trace.json", '{"hello": "world"}');
  writeSnapshot(logdir, "snapshot");
  write(logdir, "hostile/w.1.pt.trace.json", hostile());
  write(logdir, "hostile_memory/w.1.pt.trace.json", withMemory(MARKUP));
  write(logdir, "without/w.1.pt.trace.json", withMemory(null));
  write(logdir, "many/w.1.pt.trace.json", manyGpus(12));
}

export const RANKS = 3;

/** Tests may open the runs of this log directory as a table. */
function fillSeveral(logdir: string): void {
  simulate(logdir, "input_pipeline", "healthy", "leak_kept_graph");
  simulateJob(logdir, "job", RANKS);
  repeat(logdir, "healthy", "again", 3);
}

export default async function setup({ provide }: TestProject): Promise<() => Promise<void>> {
  const folders = [makeFolder(), makeFolder(), makeFolder()] as const;
  const [one, several, profile] = folders;
  fill(one);
  fillSeveral(several);
  const tensorboards = await Promise.all([startTensorBoard(one), startTensorBoard(several)]);
  provide("shared", tensorboards[0].url);
  provide("several", tensorboards[1].url);
  provide("severalLogdir", several);
  provide("profile", profile);
  return async () => {
    await Promise.all(tensorboards.map((tensorboard) => tensorboard.stop()));
    for (const folder of folders) rmSync(folder, { recursive: true, force: true });
  };
}
