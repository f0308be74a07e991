import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, it } from "vitest";
import { usePage } from "../../state/store";
import { rowPlaces } from "../../state/rowPlaces";
import type { Report } from "../../wire/report";
import { RowPlacesProvider } from "../parts/ShowOnTimeline";
import { Plan } from "./Plan";

const lists = { launch_hotspots: [], sync_sites: [], kernel_families: [], host: [], devices: [], memory: [] };
const report = {
  ...lists,
  findings: [
    { rule: "GD201", title: "Launches", ranges: [{ start_us: 100, end_us: 500, device: 0 }] },
    { rule: "GD101", title: "Input", ranges: [{ start_us: 1000, end_us: 9000, device: 0 }] },
  ],
  plan: {
    window_us: 10_000,
    saving_us: 8_000,
    error_share: 0.01,
    fixes: [
      { finding: 1, rule: "GD101", name: "input_pipeline", saving_us: 7_000, window_us: 3_000 },
      { finding: 0, rule: "GD201", name: "launch_bound", saving_us: 1_000, window_us: 2_000 },
    ],
  },
} as unknown as Report;

beforeEach(() => {
  usePage.setState(usePage.getInitialState());
  render(
    <RowPlacesProvider value={rowPlaces(report)}>
      {report.plan && <Plan plan={report.plan} findings={report.findings} keys={["GD201", "GD101"]} />}
    </RowPlacesProvider>,
  );
});

afterEach(cleanup);

it("opens the finding of a fix", () => {
  fireEvent.click(screen.getByRole("button", { name: "Input pipeline" }));
  expect(usePage.getState().finding).toBe("GD101");
});

it("shows the finding of a fix on the timeline", () => {
  fireEvent.click(screen.getByRole("button", { name: "Show on the timeline: Input" }));
  expect(usePage.getState().shown).toEqual({ row: "finding.GD101", place: 0 });
  expect(usePage.getState().view).toEqual({ start_us: -1000, end_us: 11_000 });
});
