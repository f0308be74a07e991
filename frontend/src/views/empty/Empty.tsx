import type { ReactNode } from "react";
import { RECORDING } from "../../base/vocabulary";
import { CodeBlock } from "../parts/CodeBlock";

const WHY: readonly (readonly [string, string])[] = [
  [
    "schedule(…)",
    "skips the slow first steps and records six. That is enough to detect slow steps and growing memory, and small enough to read quickly.",
  ],
  ["prof.step()", "marks the end of each step. Without it there are no figures per step."],
  [
    "with_stack=True",
    "adds your functions to the findings, at a price: the file is larger and steps are slower. We measured 1.0× the step time with large matmuls, 1.5× for a small BERT, 2.3× with thousands of tiny operators, and 3.9× with Python transforms and num_workers=0 (that file also took 45 s to save). Unless the job is compute-bound, take the timings from a recording without stacks, and record two or three steps with stacks to see the functions.",
  ],
  ["record_shapes, profile_memory", "record tensor shapes and every allocation."],
];

const CLOCK =
  "with DiagnosisHandler(logdir).step_clock(model, optimizer) as clock: for batch in clock(loader): …";

/** Shown while there is no trace: how to record one. */
export function Empty({ problems }: { problems: ReactNode }) {
  return (
    <main className="gd-empty">
      {problems}
      <h1>No traces in this log directory yet</h1>
      <p>
        Record a few training steps with <code>torch.profiler</code> into TensorBoard&apos;s log directory (
        <code>--logdir</code>). The trace appears here within seconds, without a reload.
      </p>
      <CodeBlock code={RECORDING} label="recording block" />
      <dl>
        {WHY.map(([what, why]) => (
          <div key={what}>
            <dt>
              <code>{what}</code>
            </dt>
            <dd>{why}</dd>
          </div>
        ))}
      </dl>
      <p>
        To time every step of a run without the profiler, and to record when steps get slower, use a step
        clock: <code>{CLOCK}</code>. Its page appears after ten seconds.
      </p>
      <p className="gd-muted">
        The page lists files that end in <code>.pt.trace.json</code> or <code>.pt.trace.json.gz</code> and
        CUDA memory snapshots (<code>.pickle</code>), in the log directory and its subdirectories. A run is
        named after its directory.
      </p>
    </main>
  );
}
