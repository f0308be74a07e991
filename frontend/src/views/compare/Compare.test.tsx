import { cleanup, fireEvent, screen, within } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import { plain } from "../../base/format.testdata";
import { savedFiles } from "../../base/save.testdata";
import { usePage } from "../../state/store";
import type { Comparison, Place, ReportState, Finding, TraceEntry, Verified } from "../../wire/report";
import { answerWith, renderPart } from "../page.testdata";
import Compare from "./Compare";

const trace = (id: string) =>
  ({ id, run: `run ${id}`, worker: "w", span: "", kind: "trace", content: "1" }) as TraceEntry;
const [base, candidate] = [trace("b"), trace("c")];

const step = { base: 10_000, candidate: 8_000, difference: -2000, low: -2500, high: -1500 };

function finding(rule: string, title: string): Finding {
  return {
    ...{ rule, name: "x", severity: "WARNING", title, summary: "", cost_us: 5, saving: undefined },
    ...{ evidence: [], places: [], fix: undefined, ranges: [], cost_bytes: 0, cost_bytes_per_step: 0 },
    memory_device: 0,
  } as unknown as Finding;
}

function verified(became: Verified["became"], promise: Verified["promise"]): Verified {
  return {
    ...{ rule: "GD101", name: "input_pipeline", title: "", place: "", became, promise, severity: "WARNING" },
    ...{ cost_us: 3000, left_us: 0, low_us: 2000, likely_us: 2300, high_us: 2600, others_us: 0 },
    ...{ real_us: 2500, real_low_us: 2400, real_high_us: 2700, sentence: "It gave what it promised." },
  };
}

const PLACE: Place = {
  ...{ file: "model.py", line: 41, function: "forward", operator: "", us: 0, bytes: 0, line_kind: "RUNNING" },
  ...{ module: "", range: "", caller: undefined, candidates: [] },
};

const comparison: Comparison = {
  ...{ base: "b", candidate: "c", base_id: "b", candidate_id: "c", verdict: "FASTER" },
  sentence:
    "Faster by 20.5%: 8 ms per step instead of 10 ms (medians of 5 and 6 steps; 95% confidence: -2.50 ms to " +
    "-1.50 ms). The mean step is 2 ms shorter: 2.50 ms less data loading.",
  step_us: { ...step, base_steps: 6, candidate_steps: 7 },
  mean_step_us: { ...step, low: 0, high: 0, base_steps: 6, candidate_steps: 7 },
  causes: [
    { cause: "input", base_us: 3000, candidate_us: 500 },
    { cause: "computing", base_us: 7000, candidate_us: 7500 },
    { cause: "sync", base_us: 0, candidate_us: 0 },
  ],
  operators: [],
  modules: [
    {
      ...{ name: "layers.*.attn", candidate_name: "", base_us: 4000, candidate_us: 12000 },
      ...{ base_count: 2, candidate_count: 2, path: "", family: "" },
    },
  ],
  kernels: [
    {
      ...{ name: "<b>gemm</b>", candidate_name: "gemm_fused", base_us: 100, candidate_us: 60 },
      ...{ base_count: 12, candidate_count: 6.5, path: "aten::mm", family: "gemm" },
    },
  ],
  findings: {
    gone: [finding("GD101", "Data loading keeps the GPU idle")],
    new: [finding("GD201", "Launches are slow")],
    changed: [{ base: finding("GD301", "Copies cost 5%"), candidate: finding("GD301", "Copies cost 2%") }],
  },
  verified: [verified("GONE", "INSIDE"), verified("KEPT", "NONE")],
  notes: ["The batch size differs."],
  memory: [{ device: "GPU 0", what: "peak", base_bytes: 2 ** 30, candidate_bytes: 2 ** 29 }],
  held: [
    {
      ...{ device: "GPU 0", kind: "activation", allocator: "aten::mm" },
      ...{ place: PLACE, base_place: { ...PLACE, line: 38 } },
      ...{ base_bytes: 2 ** 30, candidate_bytes: 2 ** 28, base_count: 4, candidate_count: 1 },
    },
  ],
  same_within_share: 0.02,
  launches: { base: 100, candidate: 90 },
  mfu: { base: 0.283, candidate: 0.33, base_of: "989 TFLOP/s (BF16)", candidate_of: "989 TFLOP/s (BF16)" },
};

function shown(answer: Partial<ReportState>, chosen: string | null = "b"): void {
  usePage.setState({ ...usePage.getInitialState(), tab: "compare", trace: "c", base: chosen });
  answerWith(answer);
  renderPart(<Compare traces={[base, candidate]} entry={candidate} />);
}

afterEach(() => {
  vi.restoreAllMocks();
});

function cells(row: RegExp): string[] {
  const line = screen.getByRole("row", { name: row });
  return within(line)
    .getAllByRole("cell")
    .map(({ textContent }) => plain(textContent));
}

it("shows the verdict, its figures and what makes the two hard to compare", async () => {
  shown({ state: "ready", comparison });
  const verdict = await screen.findByRole("region", { name: "Verdict" });
  const text = plain(verdict.textContent);
  const head = within(verdict).getByRole("heading").textContent;
  expect(head).toBe("Faster by 20.5%: 8 ms per step instead of 10 ms");
  const parts = [
    "The mean step is 2 ms shorter",
    "95% confidence: -2.50 ms to -1.50 ms",
    "100 → 90",
    "batch size",
  ];
  for (const part of parts) expect(text).toContain(part);
  // Each figure is said once.
  for (const figure of ["8 ms per", "20.5%", "-2.50 ms to"]) expect(text.split(figure).length).toBe(2);
});

it("shows causes whose differences add up to that of the mean step", async () => {
  shown({ state: "ready", comparison });
  await screen.findByText("Where the difference is");
  expect(cells(/Data loading/).slice(0, 3)).toEqual(["3 ms", "500 µs", "-2.50 ms"]);
  expect(cells(/Computing/).slice(0, 3)).toEqual(["7 ms", "7.50 ms", "+500 µs"]);
  expect(cells(/Mean step/).slice(0, 3)).toEqual(["10 ms", "8 ms", "-2 ms"]);
  expect(screen.queryByText("Synchronization")).toBeNull();
});

it("shows renamed kernels as text, findings on either side, and estimates next to what came true", async () => {
  shown({ state: "ready", comparison });
  await screen.findByText("<b>gemm</b> → gemm_fused");
  expect(cells(/gemm_fused/)).toContain("12 → 6.50");
  expect(screen.getByText("1 finding in the candidate only")).toBeTruthy();
  expect(screen.getByText("1 finding in the base only")).toBeTruthy();
  expect(screen.queryByRole("button", { name: /^Show on the timeline/ })).toBeNull();
  expect(cells(/GD301/)).toEqual(["Copies cost 5%", "Copies cost 2%"]);
  expect(cells(/Input pipeline/)).toEqual(["2.30 ms (2 to 2.60 ms)", "2.50 ms", "right"]);
  expect(screen.getByTitle("It gave what it promised.")).toBeTruthy();
});

it("shows which module became slower", async () => {
  shown({ state: "ready", comparison });
  await screen.findByText("Modules");
  expect(cells(/layers\.\*\.attn/)).toEqual(expect.arrayContaining(["4 ms", "12 ms", "+8 ms"]));
});

it("shows whose memory changed at the peak", async () => {
  shown({ state: "ready", comparison });
  await screen.findByText("Memory at the peak that changed most");
  expect(cells(/Activations/)).toEqual([
    "Activations",
    "1 GiB",
    "256 MiB",
    "-768 MiB",
    "aten::mm at model.py:41 in forward (was line 38)",
  ]);
});

it("shows snapshots, which have no time", async () => {
  const sentence = "The candidate allocates 1\u00a0GiB more at its peak: 2\u00a0GiB instead of 1\u00a0GiB.";
  const untimed = { step_us: undefined, mean_step_us: undefined, launches: undefined, mfu: undefined };
  shown({ state: "ready", comparison: { ...comparison, ...untimed, sentence, causes: [], kernels: [] } });
  await screen.findByText(/^The candidate allocates/);
  expect(screen.queryByText("Where the difference is")).toBeNull();
  expect(screen.queryByText(/Launches per step/)).toBeNull();
});

it("saves differences with their sign, and both counts", async () => {
  const files = savedFiles();
  shown({ state: "ready", comparison });
  fireEvent.click(await screen.findByRole("button", { name: "Save as CSV: Kernels" }));
  const [text = ""] = await files();
  const [titles, row] = text.split("\r\n");
  expect(titles).toBe(
    "Name,Family,Difference per step,Base per step,Candidate per step,Base (µs),Candidate (µs),Difference (µs)",
  );
  expect(row?.split(",").slice(2)).toEqual(["-5.5", "12", "6.5", "100", "60", "-40"]);
});

it("swaps the two, in one step", async () => {
  shown({ state: "ready", comparison });
  fireEvent.click(await screen.findByRole("button", { name: "Swap" }));
  expect(usePage.getState()).toMatchObject({ base: "c", trace: "b", tab: "compare" });
});

it("shows progress, and why there is no comparison", async () => {
  shown({ state: "running", progress: 0.5, stage: "1 of 2 recordings are analyzed" });
  await screen.findByText("1 of 2 recordings are analyzed");
  expect(screen.getByText("Comparing the recordings")).toBeTruthy();
  cleanup();
  shown({ state: "failed", error: { what: "the file is empty", where: "x", remedy: "" } });
  await screen.findByText("The file is empty.");
});

it("asks for a base, and says when that of a link is gone", () => {
  shown({}, null);
  expect(screen.getByRole("combobox", { name: "Base" })).toBeTruthy();
  cleanup();
  shown({}, "gone");
  expect(screen.getByText(/no longer in the log directory/)).toBeTruthy();
});

it("offers recordings to compare with, and pins the one that is clicked", () => {
  shown({}, null);
  const offered = within(screen.getByRole("region", { name: "Compare with" })).getAllByRole("button");
  expect(offered.map(({ textContent }) => textContent)).toEqual(["run b · w"]);
  fireEvent.click(screen.getByRole("button", { name: "run b · w" }));
  expect(usePage.getState().base).toBe("b");
});

it("offers snapshots for a snapshot, and traces for a trace", () => {
  const snapshots = ["s", "t"].map((id) => ({ ...trace(id), kind: "snapshot" as const }));
  for (const [entry, offers] of [
    [snapshots[0] as TraceEntry, "run t · w"],
    [candidate, "run b · w"],
  ] as const) {
    usePage.setState({ ...usePage.getInitialState(), tab: "compare", base: null });
    answerWith({});
    renderPart(<Compare traces={[base, candidate, ...snapshots]} entry={entry} />);
    const offered = within(screen.getByRole("region", { name: "Compare with" })).getAllByRole("button");
    expect(offered.map(({ textContent }) => textContent)).toEqual([offers]);
    cleanup();
  }
});
