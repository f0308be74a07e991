import { cleanup, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import type { TraceViewName } from "../base/hash";
import type { Report, TraceEntry } from "../wire/report";
import { answerWith, renderPart } from "./page.testdata";
import { TraceView } from "./TraceView";

async function shown(open: TraceViewName, kind: string, more: object = {}): Promise<string[]> {
  answerWith({ state: "queued" });
  const lists = ["devices", "steps", "findings", "unchecked", "clear", "memory", "counters"];
  const tables = ["launch_hotspots", "tables"];
  const report = {
    ...Object.fromEntries([...lists, ...tables].map((name) => [name, []])),
    trace: { kind, notes: [], path: "x", events: 0, malformed_events: 0, duration_us: 5, rank: -1 },
    verdict: { limiter: "unknown", sentence: "Nothing grows.", busy_share: 0 },
    ...more,
  } as unknown as Report;
  renderPart(<TraceView open={open} entry={{ id: "x", kind } as TraceEntry} report={report} />);
  const headings = await screen.findAllByRole("heading");
  return headings.map(({ textContent }) => textContent);
}

it("shows the views of a trace", async () => {
  expect(await shown("summary", "trace")).toContain("Cannot tell");
  expect(screen.getByText("Steps")).toBeTruthy();
  cleanup();
  expect(await shown("timeline", "trace")).toContain("Timeline");
  cleanup();
  expect(await shown("recording", "trace")).toContain("About this trace");
});

it("shows a memory file without figures about time and without a limiter", async () => {
  const headings = await shown("summary", "snapshot");
  expect(headings[0]).toBe("CUDA memory snapshot");
  expect(screen.getByText("Nothing grows.")).toBeTruthy();
  expect(screen.queryByText("Steps")).toBeNull();
  expect(screen.queryByText("Bottleneck")).toBeNull();
});

it("shows a record's summary with its memory in each view, and says that the trace was not kept", async () => {
  const memory = [
    { device: 0, name: "H100", peak_allocated_bytes: 2 ** 30, peak_reserved_bytes: 0, sites: [] },
  ];
  for (const open of ["summary", "timeline", "memory"] as const) {
    expect(await shown(open, "record", { memory })).toContain("Memory at its peak");
    expect(screen.getByText(/^The trace was not kept/)).toBeTruthy();
    expect(screen.queryByRole("button", { name: /^Show the memory/ })).toBeNull();
    cleanup();
  }
});
