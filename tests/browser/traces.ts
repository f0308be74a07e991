// Traces that no recording has, but that someone may put into a log directory.

/** What a name in a trace may be: markup, a script, anything. */
export const MARKUP = '<img src=x onerror="alert(1)"><script>alert(2)</script>';
export const LONG = `kernel_${"x".repeat(5000)}`;

/** Two kernels with a long gap between them, all of them with names that a page must show as text. */
export function hostile(): string {
  const host = { ph: "X", pid: 1, tid: 1 };
  const gpu = { ph: "X", pid: 0, tid: 7 };
  const launches = [0, 60_000].flatMap((ts, at) => [
    { ...host, cat: "cpu_op", name: `aten::${MARKUP}`, ts, dur: 30 },
    {
      ...host,
      cat: "cuda_runtime",
      name: "cudaLaunchKernel",
      ts: ts + 5,
      dur: 10,
      args: { correlation: at + 1 },
    },
    {
      ...gpu,
      cat: "kernel",
      name: at === 0 ? LONG : MARKUP,
      ts: ts + 40,
      dur: 20_000,
      args: { device: 0, stream: 7, correlation: at + 1 },
    },
  ]);
  const steps = [0, 1, 2].map((n) => ({
    ...host,
    cat: "user_annotation",
    name: `ProfilerStep#${n}`,
    ts: n * 30_000,
    dur: 29_000,
  }));
  return JSON.stringify({
    schemaVersion: 1,
    deviceProperties: [{ id: 0, name: MARKUP }],
    traceEvents: [...steps, ...launches],
  });
}
