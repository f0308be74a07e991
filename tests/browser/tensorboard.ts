// Starts a real TensorBoard, and writes traces for it.

import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import {
  copyFileSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

export const PROJECT = fileURLToPath(new URL("../..", import.meta.url));
export const PYTHON = process.env.PYTHON ?? join(PROJECT, ".venv/bin/python");

const LONG_AGO_S = 1_700_000_000;

export function makeFolder(): string {
  return mkdtempSync(join(tmpdir(), "gpudiag-browser-"));
}

/** Write a run per scenario of the simulator. */
export function simulate(logdir: string, ...scenarios: string[]): void {
  const only = scenarios.flatMap((scenario) => ["--only", scenario]);
  execFileSync(PYTHON, ["-m", "tests.simulator", logdir, ...only], {
    cwd: PROJECT,
  });
}

/** Write runs as they are in another log directory: simulating them takes longer. */
export function copyRuns(from: string, logdir: string, ...runs: string[]): void {
  for (const run of runs) cpSync(join(from, run), join(logdir, run), { recursive: true });
}

/** Write the traces of a job whose ranks were recorded together. One may spend 12 ms of each step in Python. */
export function simulateJob(logdir: string, run: string, ranks: number, slow?: number): void {
  const script = `
import sys
from pathlib import Path
from tests.simulator.jobs import DistributedJob, JobFault, simulate_job

folder, ranks, *slow = sys.argv[1:]
fault = JobFault("python", tuple(map(int, slow)), amount=12) if slow else None
steps = 5 if slow else 2
simulate_job(DistributedJob("ddp", ranks=int(ranks), steps=steps, fault=fault), seed=0).write(Path(folder))
`;
  const given = [join(logdir, run), ranks, ...(slow === undefined ? [] : [slow])].map(String);
  execFileSync(PYTHON, ["-c", script, ...given], { cwd: PROJECT });
}

/** Write a trace of about this size, by repeating a smaller one. */
export function writeLarge(logdir: string, run: string, size_mib: number): void {
  const script = `
import sys
from pathlib import Path
from tests.benchmarks.traces import large_trace

folder = Path(sys.argv[1])
folder.mkdir(parents=True)
large_trace(folder, int(sys.argv[2]) << 20)
`;
  execFileSync(PYTHON, ["-c", script, join(logdir, run), String(size_mib)], { cwd: PROJECT });
}

/** Write the trace of one run as several recordings of another, a minute apart. */
export function repeat(logdir: string, run: string, as: string, times: number): void {
  const [file] = readdirSync(join(logdir, run));
  if (file === undefined) throw new Error(`${run} has no trace`);
  mkdirSync(join(logdir, as), { recursive: true });
  const suffix = file.slice(file.indexOf(".pt.trace.json"));
  for (let at = 0; at < times; at++) {
    const span = 1_700_000_000_000 + 60_000 * at;
    copyFileSync(join(logdir, run, file), join(logdir, as, `worker.${span}${suffix}`));
  }
}

/** Give all files of a folder an old time. Pages wait for those that are perhaps being written. */
export function settle(folder: string): void {
  for (const name of readdirSync(folder, { recursive: true, encoding: "utf8" })) {
    const path = join(folder, name);
    if (statSync(path).isFile()) utimesSync(path, LONG_AGO_S, LONG_AGO_S);
  }
}

/** Diagnose the traces of runs and delete them: only records in event files stay. */
export function keepRecordsOnly(logdir: string, ...runs: string[]): void {
  const script = `
import sys
from pathlib import Path
from tb_gpudiag.digest.build_digest import digest_file
from tb_gpudiag.report.diagnosis import only_trace
from tb_gpudiag.training.diagnosing import compared_steps, figures_of, record_of
from tb_gpudiag.training.event_records import append_to

for run in map(Path, sys.argv[1:]):
    for step, path in enumerate(sorted(run.iterdir())):
        report, digest = digest_file(only_trace(str(path)))
        steps = compared_steps(digest)
        events = run / "gpudiag" / report.trace.worker / "events.out.tfevents.1700000000.host.1"
        append_to(str(events), record_of(report, steps), figures_of(report), step)
        path.unlink()
`;
  execFileSync(PYTHON, ["-c", script, ...runs.map((run) => join(logdir, run))], { cwd: PROJECT });
}

/** Write a CUDA memory snapshot of a script that keeps a tensor per step. */
export function writeSnapshot(logdir: string, run: string): void {
  const script = `
import sys
from pathlib import Path
from tests.builder import SnapshotBuilder

snapshot = SnapshotBuilder()
snapshot.segment(256 << 20, at=0)
for step in range(5):
    passing = snapshot.allocate(20 << 20, at=100 * step + 1, stack=["train.py(9): forward"])
    snapshot.allocate(4 << 20, at=100 * step + 20, stack=["train.py(12): log"])
    snapshot.free(passing, at=100 * step + 50)
folder = Path(sys.argv[1])
folder.mkdir(parents=True)
snapshot.write(folder)
`;
  execFileSync(PYTHON, ["-c", script, join(logdir, run)], { cwd: PROJECT });
}

export function write(logdir: string, name: string, content: string): void {
  const path = join(logdir, name);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, content);
}

export interface Served {
  readonly url: string;
  /** Return the response of one of the plugin's routes. */
  readonly get: (route: string) => Promise<unknown>;
}

export interface TensorBoard extends Served {
  readonly stop: () => Promise<void>;
}

/** A TensorBoard that runs already. */
export function servedAt(url: string): Served {
  return {
    url,
    get: async (route) => {
      const answer = await fetch(`${url}data/plugin/gpudiag/${route}`);
      return (await answer.json()) as unknown;
    },
  };
}

/** Analyze runs into a cache. An analysis by TensorBoard starts a process, which takes longer than analyzing. */
function analyze(logdir: string, cache: string, runs: readonly string[]): void {
  const script = `
import sys
from pathlib import Path
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.service.index.roots import Root
from tb_gpudiag.service.service import Service
from tb_gpudiag.service.settings import Settings
from tests.service.helpers import eventually
from tests.service.in_process import analyses_in_process

logdir, cache, *runs = sys.argv[1:]
with analyses_in_process():
    service = Service([Root(logdir)], Settings(Path(cache)))
    eventually(lambda: service.traces().scanned)
    for trace in service.traces().traces:
        if trace.run in runs:
            eventually(lambda: isinstance(service.report(trace.id), bytes))
    # A report is there before the timeline.
    ready = (pb.TraceEntry.ready, pb.TraceEntry.failed)
    eventually(lambda: all(trace.state in ready for trace in service.traces().traces if trace.run in runs))
    service.close()
`;
  execFileSync(PYTHON, ["-c", script, logdir, cache, ...runs], { cwd: PROJECT });
}

interface Given {
  /** Runs that are analyzed before it starts. */
  readonly analyzed?: readonly string[];
  readonly flags?: readonly string[];
}

export async function startTensorBoard(
  logdir: string,
  { analyzed = [], flags = [] }: Given = {},
): Promise<TensorBoard> {
  const cache = makeFolder();
  if (analyzed.length > 0) analyze(logdir, cache, analyzed);
  const server = spawn(
    PYTHON,
    ["-m", "tensorboard.main", "--logdir", logdir, "--host", "127.0.0.1", "--port", "0", ...flags],
    {
      env: { ...process.env, GPUDIAG_CACHE_DIR: cache },
      stdio: ["ignore", "ignore", "pipe"],
    },
  );
  const url = await address(server);
  return {
    ...servedAt(url),
    stop: async () => {
      const ended = new Promise((resolve) => server.once("exit", resolve));
      server.kill();
      await ended;
      rmSync(cache, { recursive: true, force: true });
    },
  };
}

function address(server: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    let output = "";
    server.stderr?.on("data", (chunk: Buffer) => {
      output += chunk.toString();
      const found = /TensorBoard \S+ at (http\S+)/.exec(output)?.[1];
      if (found) resolve(found.endsWith("/") ? found : `${found}/`);
    });
    server.once("exit", (code) => {
      reject(new Error(`TensorBoard ended with ${String(code)}:\n${output}`));
    });
  });
}
