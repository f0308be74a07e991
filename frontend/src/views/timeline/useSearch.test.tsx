import { QueryClientProvider } from "@tanstack/react-query";
import { act, renderHook } from "@testing-library/react";
import { beforeEach, expect, it, vi } from "vitest";
import { sliceOf } from "../../canvas/slice";
import { timelineOf } from "../../canvas/timeline.testdata";
import { createQueryClient } from "../../state/queries";
import { usePage } from "../../state/store";
import { PAGE } from "../../state/timelineQuery";
import type { TimelineEvent, TraceEntry } from "../../wire/report";
import { useSearch } from "./useSearch";

const entry = { id: "x", content: "1" } as TraceEntry;
const bounds = { start_us: 0, end_us: 1_000_000 };
const overview = sliceOf(timelineOf({ main: [[0, 10, "aten::mm"]] }));
const [lane = ""] = overview.lanes.keys();

/** The server's matches: event 1000 is the first, one begins each ms. */
let total: number;
let asked: URLSearchParams[];

function event(at: number): TimelineEvent {
  const place = { lane: 0, depth: 0, start_us: 1000 * at, duration_us: 100 };
  return { number: 1000 + at, name: "aten::mm", kind: 1, ...place };
}

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  total = 3;
  asked = [];
  vi.stubGlobal("fetch", (url: string) => {
    const query = new URLSearchParams(url.slice(url.indexOf("?")));
    asked.push(query);
    const first = Number(query.get("from"));
    const events = Array.from({ length: Math.min(PAGE, total - first) }, (_, at) => event(first + at));
    return Promise.resolve(Response.json({ state: "ready", total, first, events, per_part: [total] }));
  });
});

/** Wait until the user rests, which starts a request, and for its answer. */
async function answered(): Promise<void> {
  for (let n = 0; n < 2; n += 1) await act(() => vi.advanceTimersByTimeAsync(1000));
}

function searching() {
  const client = createQueryClient();
  const reveal = vi.fn();
  const stage = { view: { start_us: 0, end_us: 500 }, bounds, overview, reveal };
  const { result } = renderHook(() => useSearch(entry, stage), {
    wrapper: ({ children }) => <QueryClientProvider client={client}>{children}</QueryClientProvider>,
  });
  return { result, reveal };
}

async function found(text = "mm") {
  const { result, reveal } = searching();
  act(() => result.current.set({ text }));
  await answered();
  expect(result.current.total).toBe(total);
  const go = (at: number) => act(() => result.current.go(at));
  return { result, reveal, go };
}

const shown = () => usePage.getState().event;

it("asks once for what the user has typed, and shows no event before one is chosen", async () => {
  const { result } = searching();
  for (const text of ["m", "mm", "mm_"]) {
    act(() => result.current.set({ text }));
  }
  await answered();
  expect(result.current.total).toBe(3);
  expect(asked.map((query) => query.get("text"))).toEqual(["mm_"]);
  expect(result.current).toMatchObject({ at: -1, open: true, perPart: [3], problem: "" });
  expect(shown()).toBeNull();
});

it("steps through the matches and around: opens each, with its lane and its time in view", async () => {
  const { result, reveal, go } = await found();
  go(0);
  expect(shown()).toBe(1000);
  expect(reveal).toHaveBeenLastCalledWith(lane);
  go(1);
  expect(result.current.at).toBe(1);
  expect(shown()).toBe(1001);
  const { start_us = 0, end_us = 0 } = usePage.getState().view ?? {};
  expect(start_us < 1000 && 1100 < end_us).toBe(true);
  go(3);
  expect(shown()).toBe(1000);
  go(-1);
  expect(shown()).toBe(1002);
});

it("loads the page of a match that is not loaded, and then shows the match", async () => {
  total = 250;
  const { result, go } = await found();
  go(-1);
  expect(shown()).toBeNull();
  await answered();
  expect(shown()).toBe(1249);
  expect(asked.at(-1)?.get("from")).toBe("200");
  expect(result.current.first).toBe(200);
});

it("goes to the first match once it arrives, if Enter came before the answer", async () => {
  const { result } = searching();
  act(() => result.current.set({ text: "mm" }));
  act(() => result.current.go(0));
  await answered();
  expect(shown()).toBe(1000);
});

it("begins again with another text, and has nowhere to go without matches", async () => {
  const { result, go } = await found();
  go(2);
  total = 0;
  act(() => result.current.set({ text: "nothing" }));
  expect(result.current.at).toBe(-1);
  await answered();
  expect(asked.at(-1)?.get("text")).toBe("nothing");
  expect(result.current.loading).toBe(false);
  usePage.setState({ event: null });
  go(0);
  expect(shown()).toBeNull();
});

it("closes the list of matches for a range that is selected later, and without a text", async () => {
  const { result } = await found();
  act(() => usePage.getState().setSelection({ start_us: 5, end_us: 9 }));
  expect(result.current.open).toBe(false);
  act(() => result.current.setOpen(true));
  expect(result.current.open).toBe(true);
  act(() => result.current.set({ text: "" }));
  expect(result.current.open).toBe(false);
});
