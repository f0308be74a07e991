import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, fireEvent, render, screen, within } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { plain } from "../../base/format.testdata";
import { createQueryClient } from "../../state/queries";
import { usePage } from "../../state/store";
import type { ClockRank, ClockReport, Report, TraceEntry } from "../../wire/report";
import ClockView from "./ClockView";

// The chart is drawn on a canvas, and tests have none.
vi.mock("../history/plot", () => ({
  ...{ AXIS_PX: 74, RIGHT_PX: 14, HEIGHT_PX: 170, dataOf: () => [] },
  makePlot: () => ({ destroy: vi.fn(), setData: vi.fn() }),
}));

const entry = { id: "c", run: "r/gpudiag/clock", worker: "step clock", span: "", content: "1" } as TraceEntry;
const recording = { id: "p1", run: "r", worker: "w", span: "7", sentence: "input limits" } as TraceEntry;

function rank(number: number, drift: string): ClockRank {
  const phases = [{ name: "input", us: 1000, share: 0.25 }];
  const times = { steps: 2000, last_step: 1999, step_us: 4000, now_us: 6000 };
  return { rank: number, ...times, phases, drift, since: drift ? 900 : -1 };
}

const clock: ClockReport = {
  sentence: "Steps on rank 2 <b>take longer</b>.",
  ranks: [rank(0, ""), rank(1, "2 ms longer; waiting for other ranks (wait)"), rank(2, "2 ms longer; input")],
  recordings: [
    { rank: 2, step: 1000, why: "<b>slow</b>", worker: "w", span: "7", time_s: 1_700_000_000 },
    { rank: 0, step: 1000, why: "<b>slow</b>", worker: "gone", span: "7", time_s: 1_700_000_000 },
  ],
  notes: [],
  drifts: true,
};

const asked: URL[] = [];

function shown(about: Partial<ClockReport> = {}, failed = false): void {
  asked.length = 0;
  vi.stubGlobal("fetch", (url: string) => {
    const found = new URL(url, "http://localhost/");
    if (found.pathname.endsWith("/traces"))
      return Promise.resolve(
        new Response(JSON.stringify({ traces: [entry, recording], scanned: true, whole: true })),
      );
    asked.push(found);
    const start = Number(found.searchParams.get("start") ?? 0);
    const values = { low_us: [1, 1], median_us: [2, 2], high_us: [3, 3], mean_us: [2, 2], phases: [] };
    const steps = { first_step: 0, last_step: 1999, step: [start, start + 500], end_step: start + 1000 };
    const answer = { state: "ready", rank: Number(found.searchParams.get("rank")), ...steps, ...values };
    const error = { what: "there is no such rank", where: "rank", remedy: "" };
    return Promise.resolve(new Response(JSON.stringify(failed ? { state: "failed", error } : answer)));
  });
  const report = { clock: { ...clock, ...about }, verdict: { headline: "Steps take longer" } } as Report;
  render(
    <MantineProvider>
      <QueryClientProvider client={createQueryClient()}>
        <ClockView entry={entry} report={report} />
      </QueryClientProvider>
    </MantineProvider>,
  );
}

beforeEach(() => {
  usePage.setState(usePage.getInitialState());
});

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

it("shows the rank that got slower by itself, and any other on request", async () => {
  shown();
  await screen.findByText(/^Rank 2, steps 0 to 999/u);
  expect(asked.at(-1)?.searchParams.get("rank")).toBe("2");
  fireEvent.click(screen.getByRole("button", { name: "Show rank 0" }));
  await screen.findByText(/^Rank 0, steps/u);
  const table = screen.getByRole("table", { name: "Phases" });
  expect(plain(within(table).getAllByRole("row")[1]?.textContent)).toBe("Input1 ms25.0%");
});

it("zooms in by keyboard, asks for these steps only, and goes back", async () => {
  shown();
  const chart = await screen.findByRole("group", { name: /^Step time by step/u });
  fireEvent.keyDown(chart, { key: "ArrowRight" });
  await screen.findByText(/^Steps 0 to 499: median 2 µs/u);
  fireEvent.keyDown(chart, { key: "Enter" });
  await screen.findByRole("button", { name: "Whole run" });
  expect(asked.at(-1)?.searchParams.get("end")).toBe("125");
  fireEvent.click(screen.getByRole("button", { name: "Whole run" }));
  expect(screen.queryByRole("button", { name: "Whole run" })).toBeNull();
});

it("links to the diagnoses of the recordings that are there, and shows texts as text", async () => {
  shown();
  const region = screen.getByRole("region", { name: "Recordings" });
  expect(within(region).getAllByRole("listitem")).toHaveLength(1);
  expect(region.textContent).toContain("<b>slow</b>");
  expect(region.textContent).toContain("not in the log directory");
  fireEvent.click(await within(region).findByRole("button", { name: /^Diagnosis of rank 2/u }));
  expect(usePage.getState()).toMatchObject({ tab: "summary", trace: "p1" });
});

it("says that nothing was recorded, and why steps cannot be shown", async () => {
  shown({ recordings: [] }, true);
  await screen.findByText("There is no such rank.");
  expect(screen.getByText(/has recorded nothing/u)).toBeTruthy();
});
