import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { connect } from "./connect";
import { createQueryClient } from "./queries";
import { usePage } from "./store";

let disconnect: () => void;
const pushed = vi.spyOn(window.history, "pushState");
const replaced = vi.spyOn(window.history, "replaceState");

beforeEach(() => {
  window.location.hash = "#gpudiag";
  disconnect = connect(createQueryClient());
  vi.useFakeTimers();
  pushed.mockClear();
  replaced.mockClear();
});

afterEach(() => {
  disconnect();
});

function urls(spy: typeof pushed): string[] {
  return spy.mock.calls.map(([, , url]) => String(url).replace(/^.*#/, "#"));
}

it("replaces the URL when the page decides what to show first", () => {
  usePage.getState().openTab("runs");
  vi.advanceTimersByTime(300);
  expect(urls(pushed)).toEqual([]);
  expect(urls(replaced)).toEqual(["#gpudiag&p.gpudiag.view=runs"]);
});

it("adds a history entry when the user opens a view or a trace, after writing where they were", () => {
  usePage.getState().openTab("summary", "a");
  vi.advanceTimersByTime(300);
  usePage.getState().setView({ start_us: 1, end_us: 2 });
  usePage.getState().openTab("history");
  expect(urls(replaced).at(-1)).toBe(
    "#gpudiag&p.gpudiag.view=summary&p.gpudiag.trace=a&p.gpudiag.t0=1.000&p.gpudiag.t1=2.000",
  );
  expect(urls(pushed)[0]).toContain("p.gpudiag.view=history&p.gpudiag.trace=a");
  usePage.getState().openTrace("b");
  expect(urls(pushed)[1]).toBe("#gpudiag&p.gpudiag.view=history&p.gpudiag.trace=b");
});

it("adds a history entry when the user opens a finding, and none when they zoom", () => {
  usePage.getState().openTab("summary", "a");
  vi.advanceTimersByTime(300);
  usePage.getState().toggleFinding("GD101");
  expect(urls(pushed)).toEqual(["#gpudiag&p.gpudiag.view=summary&p.gpudiag.trace=a&p.gpudiag.finding=GD101"]);
  usePage.getState().setView({ start_us: 1, end_us: 2 });
  vi.advanceTimersByTime(300);
  expect(urls(pushed)).toHaveLength(1);
});

it("goes back without another history entry", () => {
  usePage.getState().openTab("summary", "a");
  vi.advanceTimersByTime(300);
  usePage.getState().openTab("compare");
  pushed.mockClear();
  window.history.replaceState(null, "", "#gpudiag&p.gpudiag.view=summary&p.gpudiag.trace=a");
  window.dispatchEvent(new Event("popstate"));
  expect(usePage.getState()).toMatchObject({ tab: "summary", trace: "a" });
  expect(urls(pushed)).toEqual([]);
});
