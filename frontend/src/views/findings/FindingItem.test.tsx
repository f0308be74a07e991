import { fireEvent, render, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { usePage } from "../../state/store";
import { rowPlaces } from "../../state/rowPlaces";
import type { Finding, Report } from "../../wire/report";
import { RowPlacesProvider } from "../parts/ShowOnTimeline";
import { FindingItem } from "./FindingItem";

function shown(some: Partial<Finding>): void {
  const finding = {
    ...{ rule: "GD401", title: "A leak", summary: "", severity: "ERROR", cost_us: 0, memory_device: 1 },
    ...{ cost_bytes: 0, cost_bytes_per_step: 0, evidence: [], places: [], ranges: [] },
    ...some,
  } as unknown as Finding;
  const lists = ["launch_hotspots", "tables", "devices", "memory", "steps"];
  const report = {
    ...Object.fromEntries(lists.map((name) => [name, []])),
    findings: [finding],
    trace: { kind: "trace", recorder: "torch" },
  };
  render(
    <RowPlacesProvider value={rowPlaces(report as unknown as Report)}>
      <FindingItem id="GD401" finding={finding} report={report as unknown as Report} opened />
    </RowPlacesProvider>,
  );
}

it("shows a finding about memory in the memory view of its device", () => {
  shown({ cost_bytes: 2 ** 30 });
  expect(screen.getByText("on GPU 1")).toBeTruthy();
  fireEvent.click(screen.getByRole("button", { name: "Show in the memory view: A leak" }));
  expect(usePage.getState().memoryOf).toBe(1);
});

it("also shows a finding about memory on the timeline", () => {
  shown({ cost_bytes: 2 ** 30, ranges: [{ start_us: 100, end_us: 100, device: 1 }] });
  fireEvent.click(screen.getByRole("button", { name: "Show on the timeline: A leak" }));
  expect(usePage.getState().view).toEqual({ start_us: 80, end_us: 120 });
  expect(screen.getByRole("button", { name: "Show in the memory view: A leak" })).toBeTruthy();
});

it("has no button to show a finding without a place", () => {
  shown({ cost_us: 500 });
  expect(screen.queryByRole("button", { name: /^Show/ })).toBeNull();
});

it("offers a file about this finding for a report that it is wrong", () => {
  usePage.setState({ trace: "a1" });
  shown({});
  const link = screen.getByRole("link", { name: "Wrong diagnosis?" });
  const address = new URL(link.getAttribute("href") ?? "", "http://localhost/");
  expect(Object.fromEntries(address.searchParams)).toEqual({ id: "a1", format: "dispute", rule: "GD401" });
});
