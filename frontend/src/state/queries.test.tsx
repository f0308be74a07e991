import { QueryClientProvider } from "@tanstack/react-query";
import { act, renderHook } from "@testing-library/react";
import type { ReactNode } from "react";
import { beforeEach, expect, it, vi } from "vitest";
import type { ReportState, TraceEntry, TraceList } from "../wire/report";
import { createQueryClient, useReport, useTraces } from "./queries";
import { usePage } from "./store";

let requests: string[];
let answers: Record<string, unknown>;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "setInterval", "clearInterval", "Date"] });
  requests = [];
  vi.stubGlobal("fetch", (url: string) => {
    requests.push(url);
    const route = /^\.\/(\w+)/.exec(url)?.[1] ?? "";
    return Promise.resolve(new Response(JSON.stringify(answers[route])));
  });
});

function wrapper() {
  const client = createQueryClient();
  return ({ children }: { children: ReactNode }) => (
    <QueryClientProvider client={client}>{children}</QueryClientProvider>
  );
}

async function pass(ms: number): Promise<number> {
  const before = requests.length;
  await act(() => vi.advanceTimersByTimeAsync(ms));
  return requests.length - before;
}

const list = (state: string): TraceList => ({
  traces: [{ id: "x", state, content: "1" } as TraceEntry],
  generation: 1,
  scanned: true,
  unchanged: false,
  problems: [],
  removed: [],
  whole: true,
  more: false,
});

it("polls the list more often while an analysis runs, and not at all while hidden", async () => {
  answers = { traces: list("ready") };
  renderHook(() => useTraces(), { wrapper: wrapper() });
  await pass(10);
  const idle = await pass(12_000);
  expect(idle).toBeGreaterThan(0);
  answers = { traces: list("running") };
  await pass(6_000);
  expect(await pass(12_000)).toBeGreaterThan(2 * idle);
  act(() => usePage.setState({ visible: false }));
  await pass(2_000);
  expect(await pass(60_000)).toBe(0);
});

it("polls a report until it is ready, and requests it again when the file has changed", async () => {
  const state = (name: ReportState["state"]): ReportState => ({
    state: name,
    progress: 0,
    stage: "",
    error: undefined,
    report: undefined,
    ...{ job: undefined, history: undefined, comparison: undefined },
  });
  answers = { report: state("running") };
  const first = { id: "x", content: "1" } as TraceEntry;
  const { rerender } = renderHook(({ entry }) => useReport(entry, true), {
    wrapper: wrapper(),
    initialProps: { entry: first },
  });
  expect(await pass(10_000)).toBeGreaterThan(3);
  answers = { report: state("ready") };
  await pass(2_000);
  expect(await pass(30_000)).toBe(0);
  const before = requests.length;
  rerender({ entry: { ...first, content: "2" } });
  await pass(100);
  expect(requests.length - before).toBe(1);
});
