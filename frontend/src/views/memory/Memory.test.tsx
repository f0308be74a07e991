import { fireEvent, screen, within } from "@testing-library/react";
import { beforeEach, expect, it } from "vitest";
import type { Report, TraceEntry } from "../../wire/report";
import { answerWith, renderPart } from "../page.testdata";
import { Memory } from "./Memory";

beforeEach(() => {
  answerWith({ state: "queued" });
});

function shown(findings: object[]): void {
  const of = (device: number) => ({
    ...{ device, sites: [], floors: [], peak_owners: [], peak_kinds: [], segments: [] },
    ...{ peak_allocated_bytes: 2 ** 20 * (device + 1), peak_reserved_bytes: 0, peak_phase: "", peak_us: 5 },
    ...{ capacity_bytes: 0, reserved_at_peak_bytes: 0, steps_until_full: 0, relative: false },
  });
  const report = { findings, memory: [of(0), of(1), of(2)] } as unknown as Report;
  renderPart(<Memory entry={{ id: "x", content: "c" } as TraceEntry} report={report} />);
}

const device = () => {
  const devices = screen.getByRole("radiogroup", { name: "Device" });
  return within(devices).getByRole<HTMLInputElement>("radio", { checked: true }).value;
};

it("shows the device of the worst finding about memory, until the user selects another", () => {
  const ofTime = { cost_us: 9, cost_bytes: 0, cost_bytes_per_step: 0, memory_device: 0 };
  shown([
    ofTime,
    { ...ofTime, cost_bytes: 5, memory_device: 2 },
    { ...ofTime, cost_bytes: 5, memory_device: 1 },
  ]);
  expect(device()).toBe("2");
  expect(screen.getByText(/: 3\sMiB allocated/)).toBeTruthy();
  fireEvent.click(screen.getByRole("radio", { name: "GPU 0" }));
  expect(device()).toBe("0");
});

it("shows the first device if no finding is about memory", () => {
  shown([]);
  expect(device()).toBe("0");
});
