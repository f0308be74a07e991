import { render, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import type { Report, TraceEntry } from "../../wire/report";
import { About } from "./About";

const REPORT = {
  generator: "tb-gpudiag 0.1.0",
  trace: { path: "/log/w.pt.trace.json", events: 5, malformed_events: 0, host: "", kind: "trace", notes: [] },
} as unknown as Report;

function rows(origin: string): string[] {
  const { unmount } = render(<About entry={{ origin } as TraceEntry} report={REPORT} />);
  const found = screen
    .getAllByRole("term")
    .map((term) => `${term.textContent}: ${term.nextSibling?.textContent}`);
  unmount();
  return found;
}

it("says whose result is shown, as text, and nothing if it is the user's own", () => {
  expect(rows("<b>ana</b> (shared cache)")).toContain("Result of: <b>ana</b> (shared cache)");
  expect(rows("").filter((row) => row.startsWith("Result of"))).toEqual([]);
});
