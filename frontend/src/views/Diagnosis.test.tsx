import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import { createQueryClient } from "../state/queries";
import type { Report, TraceEntry } from "../wire/report";
import { Diagnosis } from "./Diagnosis";

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

function shown(kind: string, more: object = {}): string[] {
  vi.stubGlobal("fetch", () => Promise.resolve(new Response('{"state": "queued"}')));
  const lists = ["devices", "steps", "findings", "unchecked", "clear", "memory", "host"];
  const tables = ["launch_hotspots", "sync_sites", "kernel_families", "launch_queues"];
  const report = {
    ...Object.fromEntries([...lists, ...tables].map((name) => [name, []])),
    trace: { kind, notes: [], path: "x", events: 0, malformed_events: 0, duration_us: 5, rank: -1 },
    verdict: { limiter: "unknown", sentence: "Nothing grows.", busy_share: 0 },
    ...more,
  } as unknown as Report;
  render(
    <MantineProvider>
      <QueryClientProvider client={createQueryClient()}>
        <Diagnosis entry={{ id: "x", kind } as TraceEntry} report={report} />
      </QueryClientProvider>
    </MantineProvider>,
  );
  return screen.getAllByRole("heading").map(({ textContent }) => textContent);
}

it("shows the timeline of a trace", () => {
  const headings = shown("trace");
  expect(headings).toContain("Timeline");
  expect(headings).toContain("Not known");
  expect(screen.getByText("Recording")).toBeTruthy();
});

it("shows a memory file without timeline, figures about time, and limiter", () => {
  const headings = shown("snapshot");
  expect(headings[0]).toBe("CUDA memory snapshot");
  expect(headings).not.toContain("Timeline");
  expect(screen.getByText("Nothing grows.")).toBeTruthy();
  expect(screen.queryByText("Recording")).toBeNull();
  expect(screen.queryByText("Limited by")).toBeNull();
});

it("shows memory before the timeline if the worst finding is about memory", () => {
  const finding = {
    rule: "GD401",
    title: "A leak",
    summary: "",
    severity: "ERROR",
    ranges: [],
    cost_bytes: 0,
  };
  const ofTime = { ...finding, cost_us: 5, cost_bytes_per_step: 0 };
  const ofMemory = { ...finding, cost_us: 0, cost_bytes_per_step: 1024, memory_device: 0 };
  const memoryIsFirst = (findings: object[]) => {
    shown("trace", { findings });
    const [memory, timeline] = [screen.getByText("Memory"), screen.getByText("Timeline")];
    const place = memory.compareDocumentPosition(timeline);
    cleanup();
    return (place & Node.DOCUMENT_POSITION_FOLLOWING) !== 0;
  };
  expect(memoryIsFirst([ofTime, ofMemory])).toBe(false);
  expect(memoryIsFirst([ofMemory, ofTime])).toBe(true);
});
