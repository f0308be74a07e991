// Vitest's global setup: one TensorBoard for most test files, and one profile for all browsers. The traces are
// analyzed once, and Chromium compiles TensorBoard's page once.

import { rmSync } from "node:fs";
import type { TestProject } from "vitest/node";
import { makeFolder, simulate, startTensorBoard, write, writeSnapshot } from "./tensorboard";
import { hostile, manyGpus, MARKUP, withMemory } from "./traces";

declare module "vitest" {
  interface ProvidedContext {
    /** URL of the TensorBoard. */
    readonly shared: string;
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

export default async function setup({ provide }: TestProject): Promise<() => Promise<void>> {
  const [logdir, profile] = [makeFolder(), makeFolder()];
  fill(logdir);
  const tensorboard = await startTensorBoard(logdir);
  provide("shared", tensorboard.url);
  provide("profile", profile);
  return async () => {
    await tensorboard.stop();
    for (const folder of [logdir, profile]) rmSync(folder, { recursive: true, force: true });
  };
}
