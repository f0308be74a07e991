import { act, fireEvent, screen, waitFor, within } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { savedFiles } from "../../base/save.testdata";
import { useRunsTable } from "../../state/runs";
import { usePage } from "../../state/store";
import type { RunRow } from "../../wire/report";
import { answerWith, renderPart } from "../page.testdata";
import Runs from "./Runs";

function row(run: string, more: Partial<RunRow> = {}): RunRow {
  return {
    ...{ id: run, run, kind: "trace", worker: "w", ranks: 1, recordings: 1, time_s: 1_700_000_000 },
    ...{
      step_us: 0,
      low_step_us: 0,
      high_step_us: 0,
      unprofiled_step_us: 0,
      busy_share: 0,
      account: [],
      limiter: "unknown",
      sentence: "",
    },
    ...{ first_rule: "", first_title: "", saving_share: 0, memory_share: 0, change: "", state: "ready" },
    ...{ error: undefined, trace_id: `${run}-trace`, severity: 0, why: "" },
    ...{ low_saving_share: 0, growth_bytes_per_step: 0, work: [] },
    ...more,
  };
}

const TABLE = { generation: 1, scanned: true, whole: true, more: false };

async function shown(rows: readonly RunRow[], hasFolders = false): Promise<string[]> {
  const table = { ...TABLE, rows, total: rows.length, folders: hasFolders };
  answerWith(table);
  renderPart(<Runs />);
  await screen.findByRole("table", { name: "Runs" });
  return names();
}

function names(): string[] {
  return screen.getAllByRole("row").flatMap((line) => {
    const button = within(line).queryAllByRole("button")[0];
    return button?.classList.contains("gd-open") ? [button.querySelector("b")?.textContent ?? ""] : [];
  });
}

beforeEach(() => {
  useRunsTable.setState(useRunsTable.getInitialState());
});

afterEach(() => {
  vi.restoreAllMocks();
});

const WARNING = { severity: 1, first_rule: "GD201" };

const ROWS = [
  row("small", {
    ...WARNING,
    low_saving_share: 0.1,
    step_us: 900,
    unprofiled_step_us: 900,
    limiter: "input",
    first_title: "Data loading",
  }),
  row("unknown", { state: "new" }),
  row("large", { ...WARNING, low_saving_share: 0.5, step_us: 100, kind: "job", ranks: 8, recordings: 3 }),
];

it("lists the most urgent runs first: severity, what a fix saves for sure, growing memory", async () => {
  expect(
    await shown([
      row("new", { state: "new" }),
      row("at best", { ...WARNING, saving_share: 0.9 }),
      row("healthy", { saving_share: 0 }),
      row("hint", { first_rule: "GD504", saving_share: 0.98 }),
      row("leak", { ...WARNING, growth_bytes_per_step: 1e6 }),
      row("sure", { ...WARNING, saving_share: 0.3, low_saving_share: 0.2 }),
      row("error", { first_rule: "GD101", severity: 2 }),
    ]),
  ).toEqual(["error", "sure", "leak", "at best", "hint", "healthy", "new"]);
  expect(screen.getAllByText("Warning").length).toBe(3);
  expect(screen.getByText("20.0% to 30.0%")).toBeTruthy();
  expect(screen.getByText("at most 90.0%")).toBeTruthy();
});

it("leaves out the columns that say nothing about any run", async () => {
  await shown([row("a"), row("b")]);
  for (const name of ["GPU busy", "First fix saves", "Memory", "Since previous"])
    expect(screen.queryByRole("columnheader", { name })).toBeNull();
});

it("compares a run with the one that is checked", async () => {
  await shown([row("before"), row("after"), row("failed", { state: "failed" })]);
  expect(screen.getAllByRole("checkbox").length).toBe(2);
  fireEvent.click(screen.getByRole("checkbox", { name: "Compare before" }));
  fireEvent.click(screen.getByRole("button", { name: "Compare after with before" }));
  expect(usePage.getState()).toMatchObject({ tab: "compare", base: "before-trace", trace: "after-trace" });
});

it("compares a run that is dropped on another with it", async () => {
  await shown([row("before"), row("after"), row("failed", { state: "failed" })]);
  const dataTransfer = { setData: vi.fn() };
  const cell = (name: string) => screen.getByText(name).closest("td") as HTMLElement;
  expect(cell("failed").getAttribute("draggable")).toBeNull();
  fireEvent.dragStart(cell("after"), { dataTransfer });
  // Nothing happens on itself, and on what cannot be compared.
  for (const name of ["after", "failed"]) fireEvent.drop(cell(name), { dataTransfer });
  expect(usePage.getState().tab).toBeNull();
  fireEvent.drop(cell("before"), { dataTransfer });
  expect(usePage.getState()).toMatchObject({ tab: "compare", base: "before-trace", trace: "after-trace" });
});

it("says next to a run's name how many ranks and recordings it has", async () => {
  await shown([row("many", { kind: "job", ranks: 8, recordings: 3 })]);
  expect(screen.getByText("job · 8 ranks · 3 recordings")).toBeTruthy();
});

it("has one stop of Tab, and arrow keys among rows and columns", async () => {
  await shown([row("a"), row("b")]);
  const stops = () =>
    [...document.querySelectorAll<HTMLElement>(".gd-data :is(button, input)")].filter(
      (e) => e.tabIndex === 0,
    );
  expect(stops().map((stop) => stop.textContent)).toEqual(["a"]);
  const press = (key: string) => fireEvent.keyDown(document.activeElement ?? document.body, { key });
  stops()[0]?.focus();
  press("ArrowDown");
  expect(document.activeElement?.textContent).toBe("b");
  press("ArrowRight");
  expect(document.activeElement?.getAttribute("aria-label")).toBe("Compare b");
  press("PageUp");
  expect(document.activeElement?.getAttribute("aria-label")).toBe("Compare a");
  await waitFor(() => expect(stops()).toEqual([document.activeElement]));
});

it("saves the runs in the order of the table, severities as words", async () => {
  const files = savedFiles();
  await shown(ROWS);
  fireEvent.click(screen.getByRole("button", { name: "Save as CSV: Runs" }));
  const [text = ""] = await files();
  const [titles, ...rows] = text.trim().split("\r\n");
  expect(titles).toMatch(/^Run,Severity,Ranks,Recordings,Recorded \(UTC\),Step \(µs\),/);
  expect(rows.map((line) => line.split(",").slice(0, 4).join())).toEqual([
    "large,Warning,8,3",
    "small,Warning,1,1",
    "unknown,,1,1",
  ]);
});

it("sorts by any column", async () => {
  expect(await shown(ROWS)).toEqual(["large", "small", "unknown"]);
  fireEvent.click(screen.getByRole("button", { name: "Step ± spread" }));
  expect(names()).toEqual(["small", "large", "unknown"]);
  expect(screen.getByRole("columnheader", { name: "Step ± spread" }).getAttribute("aria-sort")).toBe(
    "descending",
  );
  fireEvent.click(screen.getByRole("button", { name: "Run" }));
  expect(names()).toEqual(["large", "small", "unknown"]);
});

it("filters by every word, in the texts that it shows", async () => {
  await shown(ROWS);
  const box = screen.getByRole("textbox", { name: "Filter runs" });
  fireEvent.change(box, { target: { value: "data SMALL" } });
  expect(names()).toEqual(["small"]);
  expect(screen.getByText("1 of 3 runs")).toBeTruthy();
  fireEvent.change(box, { target: { value: "nothing like it" } });
  expect(screen.getByText("No run matches the filter.")).toBeTruthy();
});

it("opens the job of a run with several ranks, and the trace of another", async () => {
  await shown(ROWS);
  fireEvent.click(screen.getByText("large"));
  expect(usePage.getState()).toMatchObject({ tab: "job", trace: "large-trace" });
  fireEvent.click(screen.getByText("small"));
  expect(usePage.getState()).toMatchObject({ tab: "summary", trace: "small-trace" });
});

it("says the state of each run", async () => {
  const error = { what: "the file is empty", where: "", remedy: "" };
  await shown([...ROWS, row("bad", { state: "failed", error }), row("busy", { state: "running" })]);
  expect(screen.getByText("job · 8 ranks · 3 recordings")).toBeTruthy();
  expect(screen.getByText("1st of 1 in the queue")).toBeTruthy();
  expect(screen.getByText("cannot be diagnosed")).toBeTruthy();
  expect(screen.getByText("being analyzed")).toBeTruthy();
  expect(screen.getByText("The file is empty.")).toBeTruthy();
  fireEvent.click(screen.getByRole("button", { name: "Stop" }));
  expect(screen.getByText("not analyzed")).toBeTruthy();
});

it("says the place of each run that waits: those at the server first, then those that it gets next", async () => {
  await shown([
    row("late", { state: "new", time_s: 1 }),
    row("next", { state: "new", time_s: 2 }),
    row("sent", { state: "queued", recordings: 2 }),
  ]);
  expect(screen.getByText("1st of 3 in the queue · 2 recordings")).toBeTruthy();
  for (const [run, place] of [
    ["next", "2nd"],
    ["late", "3rd"],
  ] as const) {
    const button = screen.getByText(run).closest("button");
    expect(button?.textContent).toContain(`${place} of 3 in the queue`);
  }
});

it("says no rate of a leak in the title of a run: its memory has a column", async () => {
  const first_title = "GPU 0 memory grows by 24.0 MiB per step: retained autograd graph";
  await shown([row("leak", { ...WARNING, first_title, growth_bytes_per_step: 24 * 2 ** 20 })]);
  expect(screen.getByText("GPU 0 memory grows: retained autograd graph")).toBeTruthy();
  expect(screen.getAllByText(/24(\.0)?\sMiB/)).toHaveLength(1);
});

it("says that a run without a GPU computes on the CPU", async () => {
  await shown([
    row("cpu", { limiter: "compute" }),
    row("gpu", { limiter: "compute", busy_share: 0.9, first_title: "Slow matmul" }),
    row("several", { limiter: "unknown", busy_share: 0.5, first_title: "Small kernels" }),
  ]);
  expect(screen.getByText("CPU computing")).toBeTruthy();
  expect(screen.getByText("GPU computing")).toBeTruthy();
  expect(screen.getByText("Small kernels")).toBeTruthy();
});

it("renders only some of thousands of rows", async () => {
  const many = Array.from({ length: 3000 }, (_, at) => row(`run${at}`, { saving_share: 1 / (at + 1) }));
  const seen = await shown(many);
  expect(seen[0]).toBe("run0");
  expect(seen.length).toBeLessThan(200);
  expect(screen.getByRole("table", { name: "Runs" }).getAttribute("aria-rowcount")).toBe("3001");
});

it("analyzes new runs by itself, the newest first, until stopped", async () => {
  useRunsTable.setState({ analyzing: false });
  await shown([
    row("old", { state: "new", time_s: 1_600_000_000 }),
    row("young", { state: "new" }),
    row("done"),
  ]);
  const requests: string[] = [];
  const answer = fetch;
  vi.stubGlobal("fetch", (url: string) => {
    requests.push(url);
    return answer(url);
  });
  fireEvent.click(screen.getByRole("button", { name: "Analyze 2 new" }));
  expect(requests).toEqual(["./report?id=young-trace&ahead=1"]);
  fireEvent.click(screen.getByRole("button", { name: "Stop" }));
  expect(screen.getByRole("button", { name: "Analyze 2 new" })).toBeTruthy();
});

it("asks for the job when its first rank is analyzed, and shows no verdict until then", async () => {
  useRunsTable.setState({ analyzing: false });
  await shown([row("job", { kind: "job", state: "ranks", ranks: 8, step_us: 900 })]);
  expect(screen.getByText("one rank analyzed · job · 8 ranks")).toBeTruthy();
  const requests: string[] = [];
  vi.stubGlobal("fetch", (url: string) => {
    requests.push(url);
    return Promise.resolve(new Response(JSON.stringify({ state: "ready" })));
  });
  fireEvent.click(screen.getByRole("button", { name: "Analyze 1 new" }));
  expect(requests).toEqual(["./job?id=job-trace&ahead=1"]);
});

it("requests a file that was still being written again", async () => {
  vi.useFakeTimers({ shouldAdvanceTime: true });
  useRunsTable.setState({ analyzing: false });
  await shown([row("run", { state: "new" })]);
  const requests: string[] = [];
  const answer = fetch;
  vi.stubGlobal("fetch", (url: string) => {
    if (url.startsWith("./report")) requests.push(url);
    return answer(url);
  });
  fireEvent.click(screen.getByRole("button", { name: "Analyze 1 new" }));
  expect(requests).toEqual(["./report?id=run-trace&ahead=1"]);
  await act(() => vi.advanceTimersByTimeAsync(21_000));
  expect(requests).toEqual(["./report?id=run-trace&ahead=1", "./report?id=run-trace&ahead=1"]);
  vi.useRealTimers();
});

it("asks for no analysis while enough wait at the server", async () => {
  const requests: string[] = [];
  const waiting = Array.from({ length: 8 }, (_, at) => row(`waiting${at}`, { state: "queued" }));
  const running = [row("new", { state: "new" }), ...waiting];
  const table = { ...TABLE, rows: running, total: 9 };
  await shown(running);
  vi.stubGlobal("fetch", (url: string) => {
    requests.push(url);
    return Promise.resolve(new Response(JSON.stringify(table)));
  });
  expect(screen.getByRole("button", { name: "Stop" })).toBeTruthy();
  expect(requests.filter((url) => url.includes("report"))).toEqual([]);
});

it("says first which run is the worst and why: one whose memory runs out, before one that is slow", async () => {
  const slow = { severity: 2, first_rule: "GD101", first_title: "Data loading", low_saving_share: 0.5 };
  const leak = { severity: 2, first_rule: "GD401", why: "Memory; look first in log (train.py:9)" };
  expect(await shown([row("slow", slow), row("leak", leak), row("new", { state: "new" })])).toEqual([
    "leak",
    "slow",
    "new",
  ]);
  const worst = screen.getByText(/Worst of 2 analyzed runs/);
  expect(worst.textContent).toBe("Worst of 2 analyzed runs: leak. Memory; look first in log (train.py:9).");
  fireEvent.click(within(worst).getByRole("button", { name: "leak" }));
  expect(usePage.getState()).toMatchObject({ tab: "summary", trace: "leak-trace" });
});

it("groups the runs by folder, the most urgent ones first, and folds a folder", async () => {
  const rows = [
    row("b/1", { ...WARNING, low_saving_share: 0.2 }),
    row("a/1", { ...WARNING, low_saving_share: 0.1 }),
    row("b/2", { ...WARNING, low_saving_share: 0.05 }),
    row("a/2", { ...WARNING, low_saving_share: 0.5 }),
  ];
  const seen = await shown(rows, true);
  expect(seen).toEqual(["a", "2", "1", "b", "1", "2"]);
  fireEvent.click(screen.getByText("a"));
  expect(names()).toEqual(["a", "b", "1", "2"]);
  fireEvent.click(screen.getByRole("button", { name: "By folder" }));
  expect(names()).toEqual(["a/2", "b/1", "a/1", "b/2"]);
});
