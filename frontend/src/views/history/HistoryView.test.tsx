import { fireEvent, screen, within } from "@testing-library/react";
import { expect, it, vi } from "vitest";
import { plain } from "../../base/format.testdata";
import { usePage } from "../../state/store";
import type { History, HistoryPoint, ReportState, TraceEntry } from "../../wire/report";
import { answerWith, renderPart } from "../page.testdata";
import HistoryView from "./HistoryView";

// The chart is drawn on a canvas, and tests have none.
vi.mock("./plot", () => ({
  AXIS_PX: 74,
  RIGHT_PX: 14,
  HEIGHT_PX: 170,
  makePlot: () => ({ destroy: vi.fn(), setData: vi.fn() }),
  dataOf: () => [],
}));

const entry = { id: "p1", run: "r", worker: "w", span: "", kind: "trace", content: "1" } as TraceEntry;

function point(at: number): HistoryPoint {
  return {
    ...{ id: `p${at}`, worker: "w", span: "", time_s: 1_700_000_000 + 60 * at, rank: 0, step_us: 1000 * at },
    ...{ low_step_us: 900 * at, high_step_us: 1100 * at, steps: 6, busy_share: 0.5, shares: [] },
    ...{ floor_bytes: 1024, peak_bytes: 2048, limiter: "input", rules: [], saving_us: 0 },
    ...{ title: `<b>finding ${at}</b>`, severity: 0, device_name: "", record: false },
  };
}

const history = {
  ...{ schema_version: 1, run: "r", points: [point(1), point(2), point(3)] },
  changes: [
    { point: 2, what: "step", before: 1, after: 2, unit: "us", sentence: "the step got slower", causes: [] },
  ],
  drifts: [{ sentence: "memory grows by 1 GiB per hour" }],
  problems: [],
  notes: ["one recording has no steps"],
} as unknown as History;

function shown(answer: Partial<ReportState>): void {
  answerWith(answer);
  renderPart(<HistoryView traces={[entry]} entry={entry} />);
}

it("lists changes and drifts, and opens the first recording after a change", async () => {
  shown({ state: "ready", history });
  await screen.findByText("The step got slower.");
  expect(screen.getByText("Memory grows by 1 GiB per hour.")).toBeTruthy();
  expect(screen.getByText("One recording has no steps.")).toBeTruthy();
  fireEvent.click(screen.getByTitle("Open the first recording after the change"));
  expect(usePage.getState()).toMatchObject({ tab: "summary", trace: "p3" });
});

it("reads the recordings of a chart by keyboard, and opens one", async () => {
  shown({ state: "ready", history });
  const chart = await screen.findByRole("group", { name: /^Step time by recording/ });
  fireEvent.keyDown(chart, { key: "ArrowRight" });
  fireEvent.keyDown(chart, { key: "ArrowRight" });
  const texts = screen.getAllByRole("status").map(({ textContent }) => plain(textContent));
  expect(texts[0]).toContain("median 2 ms, upper quartile 2.20 ms, lower quartile 1.80 ms");
  fireEvent.keyDown(chart, { key: "Enter" });
  expect(usePage.getState().trace).toBe("p2");
});

it("has the figures of the curves as a table, the newest first", async () => {
  shown({ state: "ready", history });
  const table = await screen.findByRole("table", { name: "Recordings" });
  const first = within(table).getAllByRole("row")[1];
  const cells = first ? within(first).getAllByRole("cell") : [];
  expect(plain(cells[1]?.textContent)).toBe("3 ms");
  expect(cells.at(-1)?.textContent).toBe("Data loading <b>finding 3</b>");
});

it("says why there is no history", async () => {
  shown({ state: "failed", error: { what: "no recording can be read", where: "r", remedy: "" } });
  await screen.findByText("No recording can be read.");
});

it("does not say that nothing changed between records", async () => {
  const records = [point(1), point(2), point(3)].map((one) => ({ ...one, record: true }));
  shown({ state: "ready", history: { ...history, points: records, changes: [], drifts: [] } });
  expect(await screen.findByText(/^Unknown: changes are found in traces/)).toBeTruthy();
});
