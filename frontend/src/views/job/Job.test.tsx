import { fireEvent, screen, within } from "@testing-library/react";
import { expect, it } from "vitest";
import { table } from "../../base/tables.testdata";
import { plain } from "../../base/format.testdata";
import { usePage } from "../../state/store";
import type { JobRank, JobReport, ReportState, TraceEntry } from "../../wire/report";
import { answerWith, renderPart } from "../page.testdata";
import Job from "./Job";

const entry = { id: "t0", run: "r", worker: "w", span: "", kind: "trace", content: "1" } as TraceEntry;

function rankOf(rank: number, waiting_us: number): JobRank {
  return {
    ...{ rank, worker: `worker${rank}`, host: "node1", id: `t${rank}`, step_us: 1000, window_us: 10_000 },
    ...{ busy_us: 4000, computing_us: 3000, copying_us: 0, communicating_us: 1000, waiting_us },
    ...{ transfer_us: 200, exposed_communication_us: 1000, clock_offset_us: 0, last_in: rank, start_us: 0 },
    idle_by_cause: [{ cause: rank === 1 ? "input" : "python", us: 6000 }],
    ...{ limiter: "input", device_name: "", findings: [] },
  };
}

const job: JobReport = {
  ...{ schema_version: 1, generator: "", id: "t0", run: "r", span: "", parallelism: "DDP" },
  ...{ world_size: 3, ranks: [rankOf(0, 800), rankOf(1, 0)], missing_ranks: [2], missing: 1 },
  step_time: {
    median_us: 16100,
    mean_us: 16100,
    low_us: 0,
    high_us: 0,
    steps: 0,
    inferred: false,
    unprofiled_us: 11300,
    unprofiled_least_us: 0,
    unprofiled_most_us: 0,
  },
  clocks: { basis: "COLLECTIVES", residual_us: 4.5 },
  collectives: {
    ...{ matched: 7, unmatched: 2, waiting_us: 800, transfer_us: 200 },
    worst: [
      {
        ...{
          index: 3,
          group: "g",
          kind: "all_reduce",
          name: "nccl",
          annotation: "<i>bucket</i>",
          bytes: 1024,
        },
        ...{ skew_us: 800, transfer_us: 30, last_rank: 1, first_rank: 0, waiting_us: { "0": 800, "1": 0 } },
        ...{ start_us: 0, end_us: 1, why: "late_recording", why_us: 750, place: undefined },
      },
    ],
  },
  slowdown: {
    ...{ s: 1.25, low: 1.2, high: 1.3, by_rank: { "0": 1, "1": 1.24 }, by_kind: { forward_compute: 1.1 } },
    ...{ basis: "replayed", error_share: 0.01, step_us: 1000, ideal_step_us: 800 },
  },
  tables: [
    table("units", { for: ["code", ["FSDP · <i>layers.3</i>"]], why: ["text", ["Not prefetched"]] }),
    table("sizes", { collective: ["text", ["all-reduce"]], bus: ["GB/s", [34.95]] }),
    table("stages", { stage: ["count", [0, 1]] }, { title: "Pipeline: GPipe, 2 stages" }),
  ],
  pipeline: {
    ...{ schedule: "GPipe", named: true, stages: 2, micro_batches: 4, stages_per_rank: 1 },
    ...{ bubble_share: 0.3, ideal_share: 0.2 },
  },
  verdict: {
    limiter: "input",
    sentence: "Rank 1 loads data slowly.",
    busy_share: 0,
    headline: "",
    leak: "",
    where: "",
  },
  ...{ findings: [], unchecked: [], clear: [], notes: ["two recordings overlap"] },
  problems: [{ what: "the file is empty", where: "worker9", remedy: "" }],
  steps: [
    {
      ...{ name: "ProfilerStep#4", start_us: 0, duration_us: 1000, last_rank: 1 },
      ...{ rank_us: [1000, 1000], rank_waiting_us: [400, 0] },
    },
  ],
  timeline: {
    ...{ parts: ["computing", "copying", "communicating", "input"], kinds: ["all_reduce"] },
    ...{ left_out: 2, merged: true },
    lanes: [
      {
        ...{ at: 0, aligned: true, start_us: 0, end_us: [1000, 2000], parts: [1, 1] },
        ...{ part: [0, 2], part_us: [1000, 1000] },
        collectives: {
          ...{ start_us: [1000], end_us: [2000], waiting_us: [800], transfer_us: [200] },
          ...{ waited_for_us: [0], count: [1], kind: [1] },
        },
      },
      {
        ...{ at: 1, aligned: false, start_us: 0, end_us: [1800, 2000], parts: [2, 1] },
        ...{ part: [0, 3, 2], part_us: [600, 1200, 200] },
        collectives: {
          ...{ start_us: [1800], end_us: [2000], waiting_us: [0], transfer_us: [200] },
          ...{ waited_for_us: [800], count: [1], kind: [1] },
        },
      },
    ],
  },
};

function shown(answer: Partial<ReportState>): void {
  answerWith(answer);
  renderPart(<Job traces={[entry]} entry={entry} />);
}

function rows(table: string): string[][] {
  return within(screen.getByRole("table", { name: table }))
    .getAllByRole("row")
    .slice(1)
    .map((row) =>
      within(row)
        .getAllByRole("cell")
        .map(({ textContent }) => plain(textContent)),
    );
}

it("shows one verdict for the job, and what is missing or cannot be read", async () => {
  shown({ state: "ready", job });
  const verdict = plain((await screen.findByRole("region", { name: "Verdict" })).textContent);
  for (const part of ["Data loading", "Rank 1 loads", "2 of 3", "DDP", "within 4.50 µs", "11.3 ms without"])
    expect(verdict).toContain(part);
  expect(screen.getByText(/Rank 2 is missing/)).toBeTruthy();
  expect(screen.getByText("The file is empty.")).toBeTruthy();
  expect(screen.getByText("Two recordings overlap.")).toBeTruthy();
});

it("does not say how many ranks a job has where no recording says it", async () => {
  shown({ state: "ready", job: { ...job, world_size: 0 } });
  expect((await screen.findByText(/Rank 2 is missing/)).textContent).toMatch(/^Rank 2/);
});

it("lists the ranks, the latest first, sorts them, and opens the report of one", async () => {
  shown({ state: "ready", job });
  await screen.findByText("Ranks", { selector: "h2" });
  expect(rows("Ranks").map(([rank]) => rank)).toEqual(["1", "0"]); // rank 1 waits less: it is late
  expect(rows("Ranks")[1]?.slice(1, 8)).toEqual(["node1", "1 ms", "40.0%", "8.0%", "2.0%", "10.0%", "0"]);
  fireEvent.click(screen.getByRole("button", { name: "Rank" }));
  expect(rows("Ranks").map(([rank]) => rank)).toEqual(["0", "1"]);
  fireEvent.click(within(screen.getByRole("table", { name: "Ranks" })).getByRole("button", { name: "1" }));
  expect(usePage.getState()).toMatchObject({ tab: "summary", trace: "t1" });
});

it("reads the cells of the map by keyboard, and has the same figures as a table", async () => {
  shown({ state: "ready", job });
  const map = await screen.findByRole("img", { name: /Share of the step window by rank and cause/ });
  fireEvent.keyDown(map, { key: "ArrowDown" });
  expect(screen.getByText(/Rank 0, Computing: 30.0% of its step window/)).toBeTruthy();
  fireEvent.keyDown(map, { key: "ArrowRight" });
  fireEvent.keyDown(map, { key: "ArrowRight" });
  fireEvent.keyDown(map, { key: "ArrowDown" });
  expect(screen.getByText(/Rank 1, Data loading: 60.0%/)).toBeTruthy();
  fireEvent.keyDown(map, { key: "Enter" });
  expect(usePage.getState().trace).toBe("t1");
  const details = map.closest("section")?.querySelectorAll("details");
  details?.forEach((element) => {
    element.open = true;
    fireEvent(element, new Event("toggle"));
  });
  expect(rows("Time by rank and cause")[1]?.slice(0, 4)).toEqual(["1", "30.0%", "10.0%", "60.0%"]);
});

it("shows why collectives wait, as text, and how fast they transfer", async () => {
  shown({ state: "ready", job });
  await screen.findByText("Collectives with the most waiting");
  const [collective = []] = rows("Collectives");
  expect(collective[0]).toBe("all_reduce <i>bucket</i>");
  expect(collective.at(-1)).toBe("Late recording, 750 µs");
  expect(rows("sizes")[0]).toEqual(["all-reduce", "35.0 GB/s"]);
});

it("shows the slowdown, and the ranks and kinds of work behind it", async () => {
  shown({ state: "ready", job });
  const text = plain((await screen.findByText(/The job takes 1.25 times as long/)).textContent);
  expect(text).toContain("the mean step takes 1 ms instead of 800 µs");
  expect(screen.getByText("Rank 1")).toBeTruthy();
  expect(screen.queryByText("Rank 0")).toBeNull();
  expect(screen.getByText("Forward compute")).toBeTruthy();
});

it("shows what collectives are for, and a pipeline's bubbles", async () => {
  shown({ state: "ready", job });
  expect(await screen.findByText("FSDP · <i>layers.3</i>")).toBeTruthy();
  expect(screen.getByText("Not prefetched")).toBeTruthy();
  expect(screen.getByRole("heading", { name: "Pipeline: GPipe, 2 stages" })).toBeTruthy();
});

it("moves over the timeline of the ranks by keyboard, and opens the timeline of one", async () => {
  shown({ state: "ready", job });
  const chart = await screen.findByRole("group", { name: /^Timeline of the ranks/ });
  expect(screen.getByText(/2 others without a lane/)).toBeTruthy();
  expect(screen.getByText(/Some clocks cannot be compared/)).toBeTruthy();
  fireEvent.keyDown(chart, { key: "ArrowRight" });
  expect(screen.getByText("Rank 0, at 0 ms, for 1 ms: Computing 100%.")).toBeTruthy();
  fireEvent.keyDown(chart, { key: "ArrowRight" });
  expect(screen.getByText(/all_reduce: waits 800 µs, transfers 200 µs\.$/)).toBeTruthy();
  fireEvent.keyDown(chart, { key: "ArrowDown" });
  expect(screen.getByText(/^Rank 1\*, at 0 ms.*Data loading 66.7%, Computing 33.3%\.$/)).toBeTruthy();
  fireEvent.keyDown(chart, { key: "ArrowRight" });
  expect(screen.getByText(/the other ranks wait 800 µs in total for this one/)).toBeTruthy();
  fireEvent.keyDown(chart, { key: "Enter" });
  expect(usePage.getState()).toMatchObject({
    ...{ tab: "timeline", trace: "t1", view: { start_us: 1750, end_us: 2050 } },
  });
});
