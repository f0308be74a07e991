// Unusual traces that no profiler records, but that a log directory can contain.

/** A name in a trace can be anything, such as markup with a script. */
export const MARKUP = '<img src=x onerror="alert(1)"><script>alert(2)</script>';
export const LONG = `kernel_${"x".repeat(5000)}`;

/** Two kernels with a long gap between them. The page must show all of their names as text. */
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

/** Memory of a GPU and of the CPU, allocated by an operator of this name. Null: memory was not recorded. */
export function withMemory(name: string | null): string {
  const host = { ph: "X", pid: 1, tid: 1 };
  const memory = (ts: number, device: number, bytes: number, total: number) => ({
    ph: "i",
    s: "t",
    cat: "cpu_instant_event",
    name: "[memory]",
    pid: 1,
    tid: 1,
    ts,
    args: {
      "Device Type": device < 0 ? 0 : 1,
      "Device Id": device,
      Addr: 4096 + ts,
      Bytes: bytes,
      "Total Allocated": total,
      "Total Reserved": device < 0 ? 0 : 2 ** 21,
    },
  });
  const operators = [0, 1000].map((ts) => ({
    ...host,
    cat: "cpu_op",
    name: name ?? "aten::mm",
    ts,
    dur: 500,
  }));
  const events = [
    memory(10, 0, 2 ** 20, 2 ** 20),
    memory(1010, 0, 512, 2 ** 20 + 512),
    memory(20, -1, 3072, 3072),
  ];
  return JSON.stringify({
    schemaVersion: 1,
    traceEvents: [...operators, ...(name === null ? [] : events)],
  });
}

/** GPUs with a kernel each. Enough of them make the lanes scroll. */
export function manyGpus(gpus: number): string {
  const events = Array.from({ length: gpus }, (_, device) => [
    {
      ph: "X",
      cat: "cuda_runtime",
      name: "cudaLaunchKernel",
      pid: 1,
      tid: 1,
      ts: 20 * device,
      dur: 10,
      args: { correlation: device + 1 },
    },
    {
      ph: "X",
      cat: "kernel",
      name: "ampere_sgemm_128x64_nn",
      pid: device,
      tid: 7,
      ts: 20 * device + 15,
      dur: 1000 - device,
      args: { device, stream: 7, correlation: device + 1 },
    },
  ]);
  return JSON.stringify({ schemaVersion: 1, traceEvents: events.flat() });
}
