// Every kind of name in a trace is markup with a script. In every view, and in a page to pass on, it stays text.

import { createHash } from "node:crypto";
import { pathToFileURL } from "node:url";
import { expect, it, test } from "vitest";
import { VIEWS } from "../../frontend/src/base/hash";
import { Session } from "./session";
import { write } from "./tensorboard";
import { MARKUP } from "./traces";

/** Names of folders and files have no slashes. */
const RUN = `<img src=x onerror=alert(3)>"'><svg onload=alert(4)>`;
const BREAKS_OUT = `</script><script>alert(5)</script>\${alert(6)}{{alert(7)}} javascript:alert(8) `;
const NAME = BREAKS_OUT + MARKUP;

/** One of two ranks, with a name in every place that a view shows. `ms`: how long its kernels run. */
function everywhere(rank: number, ms: number): string {
  const host = { ph: "X", pid: 1, tid: 1 };
  const at = [0, 1, 2, 3].flatMap((step) => {
    const ts = step * 100_000;
    const id = 10 * step + 1;
    const gpu = { ph: "X", pid: 0, tid: 7, cat: "kernel" };
    const collective = {
      "Collective name": NAME,
      "Process Group Name": NAME,
      "In msg nelems": 1024,
      "Group size": 2,
      dtype: "Float",
      Seq: step,
    };
    const launch = (after: number, correlation: number) => ({
      ...host,
      ...{ cat: "cuda_runtime", name: "cudaLaunchKernel", ts: ts + after, dur: 10, args: { correlation } },
    });
    return [
      { ...host, cat: "user_annotation", name: `ProfilerStep#${step}`, ts, dur: 99_000 },
      { ...host, cat: "user_annotation", name: NAME, ts: ts + 1, dur: 90_000 },
      { ...host, cat: "cpu_op", name: "_compile.compile_inner (dynamo_timed)", ts: ts + 81_000, dur: 900 },
      { ...host, cat: "cpu_op", name: `Torch-Compiled Region: 3/${step}`, ts: ts + 82_000, dur: 900 },
      { ...host, cat: "python_function", name: `${NAME}.py(12): ${NAME}`, ts: ts + 2, dur: 80_000 },
      {
        ...host,
        cat: "cpu_op",
        name: `aten::${NAME}`,
        ts: ts + 40_000,
        dur: 900,
        args: { "Input Dims": NAME },
      },
      launch(40_010, id),
      {
        ...gpu,
        name: NAME,
        ts: ts + 41_000,
        dur: ms * 1000,
        args: { device: 0, stream: 7, correlation: id },
      },
      launch(40_100, id + 1),
      {
        ...gpu,
        name: `ncclDevKernel_AllReduce_${NAME}`,
        ts: ts + 42_000 + ms * 1000,
        dur: 2000,
        args: { device: 0, stream: 7, correlation: id + 1, ...collective },
      },
      {
        ...{ ph: "i", s: "t", cat: "cpu_instant_event", name: "[memory]", pid: 1, tid: 1, ts: ts + 40_200 },
        args: {
          ...{ "Device Type": 1, "Device Id": 0, Addr: 4096 * (step + 1), Bytes: 2 ** 22 },
          ...{ "Total Allocated": (step + 1) * 2 ** 22, "Total Reserved": 2 ** 25 },
        },
      },
      { ph: "C", pid: 0, tid: 0, name: NAME, ts, args: { [NAME]: step } },
    ];
  });
  return JSON.stringify({
    schemaVersion: 1,
    deviceProperties: [{ id: 0, name: NAME, totalGlobalMem: 2 ** 30 }],
    distributedInfo: { backend: "nccl", rank, world_size: 2, pg_config: [{ pg_name: NAME, ranks: [0, 1] }] },
    host_name: NAME,
    [NAME]: NAME,
    traceEvents: [
      { ph: "M", name: "process_name", pid: 1, tid: 0, args: { name: NAME } },
      { ph: "M", name: "thread_name", pid: 1, tid: 1, args: { name: NAME } },
      ...at,
    ],
  });
}

/** A log of torch.compile with a name in every text that a view shows. */
function compileLog(): string {
  const entry = (content: object) => `V1126 10:02:47.287000 1 x.py:1] ${JSON.stringify(content)}\n`;
  const payload = `Graph break in user code at ${NAME}:7\nReason: ${NAME}`;
  const has_payload = createHash("md5").update(payload).digest("hex");
  const broken = { artifact: { name: "dynamo_graph_break_reason" }, frame_id: 3, has_payload };
  const compiled = [0, 1, 2, 3].map((step) => ({
    compilation_metrics: {
      ...{ co_name: NAME, co_filename: NAME, co_firstlineno: 5, start_time_us: step * 100_000 + 81_000 },
      ...{ recompile_reason: `3/0: ${NAME}`, cudagraph_skip_reason: NAME, fail_type: NAME },
    },
    ...{ frame_id: 3, frame_compile_id: step },
  }));
  return entry(broken) + payload.replaceAll(/^/gm, "\t") + "\n" + compiled.map(entry).join("");
}

const session = new Session((logdir) => {
  write(logdir, `${RUN}/dedicated_log_torch_trace_${RUN}.log`, compileLog());
  for (const span of [1, 2])
    for (const rank of [0, 1])
      write(logdir, `${RUN}/rank${rank}${RUN}.170000000${span}000.pt.trace.json`, everywhere(rank, 3 * span));
});

/** No element was made of a name. The session fails the test after a dialog or a request for the image. */
async function noElementOfAName(page: { locator: (css: string) => { count: () => Promise<number> } }) {
  expect(await page.locator('img[src="x"], svg[onload], [onerror]').count()).toBe(0);
}

it("shows what a log of torch.compile says as text", async () => {
  await session.reportOf(RUN);
  const frame = await session.open(RUN, "host");
  for (const name of ["Compilations", "Graph breaks", "Without CUDA graphs"])
    await expect.poll(() => frame.getByRole("table", { name }).innerText()).toContain(MARKUP);
  await noElementOfAName(frame);
});

for (const view of VIEWS)
  it(`shows names as text in ${view}`, async () => {
    await session.reportOf(RUN);
    const frame = await session.open(RUN, view);
    await expect.poll(() => frame.locator("body").innerText()).toContain("onerror=alert(");
    await noElementOfAName(frame);
  });

test("a page to pass on shows names as text", async () => {
  await session.reportOf(RUN);
  const frame = await session.open(RUN);
  await frame.getByRole("button", { name: "Share" }).click();
  const [download] = await Promise.all([
    session.page.waitForEvent("download"),
    frame.getByRole("menuitem", { name: /^One HTML file/ }).click(),
  ]);
  const file = `${await download.path()}.html`;
  await download.saveAs(file);
  await session.page.goto(pathToFileURL(file).href);
  await expect.poll(() => session.page.locator("body").innerText()).toContain("onerror=alert(");
  await noElementOfAName(session.page);
});
