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

function shown(kind: string): string[] {
  vi.stubGlobal("fetch", () => Promise.resolve(new Response('{"state": "queued"}')));
  const lists = ["devices", "steps", "findings", "unchecked", "clear", "memory", "host"];
  const tables = ["launch_hotspots", "sync_sites", "kernel_families", "launch_queues"];
  const report = {
    ...Object.fromEntries([...lists, ...tables].map((name) => [name, []])),
    trace: { kind, notes: [], path: "x", events: 0, malformed_events: 0, duration_us: 5, rank: -1 },
    verdict: { limiter: "unknown", sentence: "Nothing grows.", busy_share: 0 },
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

it("shows a trace on the timeline", () => {
  const headings = shown("trace");
  expect(headings).toContain("Timeline");
  expect(headings).toContain("Not known");
  expect(screen.getByText("Recording")).toBeTruthy();
});

it("shows a file of memory alone as that: no timeline, no time, no limit", () => {
  const headings = shown("snapshot");
  expect(headings[0]).toBe("CUDA memory snapshot");
  expect(headings).not.toContain("Timeline");
  expect(screen.getByText("Nothing grows.")).toBeTruthy();
  expect(screen.queryByText("Recording")).toBeNull();
  expect(screen.queryByText("Limited by")).toBeNull();
});
