import { fireEvent, screen, within } from "@testing-library/react";
import { beforeEach, expect, it, vi } from "vitest";
import { cause } from "../../base/causes";
import { plain } from "../../base/format.testdata";
import { usePage } from "../../state/store";
import type { RangeStatistics, TraceEntry } from "../../wire/report";
import { answerWith, renderPart } from "../page.testdata";
import { RangePanel } from "./RangePanel";
import type { Search } from "./useSearch";

const entry = { id: "x", content: "1" } as TraceEntry;
const range = { start_us: 100, end_us: 1100 };
const named = (name: string, count: number, self_us: number, total_us: number) => ({
  ...{ name, count, self_us, total_us },
});

const statistics: RangeStatistics = {
  ...{ state: "ready", error: undefined, progress: 1, ...range },
  devices: [
    {
      ...{ device: 0, computing_us: 400, copying_us: 0, communicating_us: 100, outside_us: 0, gaps: 1 },
      idle_by_cause: [
        { cause: "latency", us: 50 },
        { cause: "input", us: 450 },
      ],
    },
  ],
  threads: [
    { title: "main", operators_us: 600, calls_us: 0, python_us: 0, annotations_us: 0, nothing_us: 400 },
  ],
  operators: [named("aten::mm", 3, 300, 500), named("", 9, 40, 40)],
  calls: [],
  kernels: [],
};

const set = vi.fn();

beforeEach(() => {
  usePage.setState({ ...usePage.getInitialState(), selection: range });
  set.mockClear();
  answerWith(statistics);
  renderPart(<RangePanel entry={entry} range={range} search={{ set } as unknown as Search} />);
});

const rowsOf = (table: HTMLElement) =>
  within(table)
    .getAllByRole("row")
    .map((row) => [...row.children].map((cell) => plain(cell.textContent)));

async function partOf(name: string): Promise<void> {
  await screen.findByRole("table");
  fireEvent.click(screen.getByRole("radio", { name }));
}

it("accounts for the range on each GPU, the longest idle cause first, without parts that took no time", async () => {
  expect(rowsOf(await screen.findByRole("table", { name: "GPU 0, 1 gap" }))).toEqual([
    ["Computing", "400 µs", "40.0%"],
    ["Communicating, exposed", "100 µs", "10.0%"],
    [`Idle: ${cause("input").word}`, "450 µs", "45.0%"],
    [`Idle: ${cause("latency").word}`, "50 µs", "5.0%"],
  ]);
});

it("accounts for the range on each thread", async () => {
  await partOf("Threads");
  expect(rowsOf(screen.getByRole("table", { name: "main" }))).toEqual([
    ["Operators", "600 µs", "60.0%"],
    ["Nothing recorded", "400 µs", "40.0%"],
  ]);
});

it("searches for the operator of a row, but not for the rest of them", async () => {
  await partOf("Operators");
  fireEvent.click(screen.getByText("All others"));
  expect(set).not.toHaveBeenCalled();
  fireEvent.click(screen.getByText("aten::mm"));
  expect(set).toHaveBeenCalledExactlyOnceWith({ text: "aten::mm", kind: "operator", regex: false });
});

it("says that nothing of a kind is in the range", async () => {
  await partOf("Calls");
  expect(screen.getByText("None in this range.")).toBeTruthy();
});

it("zooms to the range, or closes", async () => {
  await screen.findByRole("table");
  fireEvent.click(screen.getByRole("button", { name: "Zoom in" }));
  expect(usePage.getState()).toMatchObject({ view: range, selection: null });
  usePage.setState({ selection: range });
  fireEvent.click(screen.getByRole("button", { name: "Close" }));
  expect(usePage.getState().selection).toBeNull();
});
