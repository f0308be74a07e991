import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { render, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import type { ReportState, TraceEntry } from "../../wire/report";
import { Analyzing } from "./Analyzing";

const ENTRY = { id: "a", size_bytes: 1e6, content: "x" } as TraceEntry;

it("says how long an analysis still takes, in whole seconds, until it proves to be wrong", () => {
  const client = new QueryClient();
  const at = (s: number, progress: number) => (
    <QueryClientProvider client={client}>
      <MantineProvider>
        <Analyzing
          entry={ENTRY}
          state={{ state: "running", progress, stage: "reading" } as ReportState}
          at_ms={1000 * s}
          again={false}
        />
      </MantineProvider>
    </QueryClientProvider>
  );
  const { rerender } = render(at(0, 0));
  rerender(at(4, 0.3));
  expect(screen.getByText(/about 10 s left/)).toBeTruthy();
  rerender(at(6, 0.5));
  expect(screen.getByText(/about 6 s left/)).toBeTruthy();
  rerender(at(20, 0.5)); // it stands still
  expect(screen.queryByText(/left/)).toBeNull();
});
