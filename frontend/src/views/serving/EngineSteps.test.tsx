import { cleanup, screen, within } from "@testing-library/react";
import { expect, it } from "vitest";
import { plain } from "../../base/format.testdata";
import type { EngineKind, Serving } from "../../wire/report";
import { renderPart } from "../page.testdata";
import { EngineSteps } from "./EngineSteps";

const kinds = [
  {
    ...{ kind: "prefill", steps: 1, median_us: 87_000, low_us: 87_000, high_us: 87_000, requests: 2 },
    ...{ tokens: 4096, tokens_per_s: 47_080, busy_share: 0.9, gap_us: 0, gap_known: false },
  },
  {
    ...{ kind: "decode", steps: 8, median_us: 26_800, low_us: 26_600, high_us: 27_100, requests: 4 },
    ...{ tokens: -1, tokens_per_s: -1, busy_share: 0.874, gap_us: 290, gap_known: true },
  },
] as EngineKind[];

const serving = {
  ...{ server: "vLLM", marked: true, sentence: "", kinds, steps: Array.from({ length: 9 }, () => ({})) },
  ...{ waiting_us: 0, waits_for_engine: false },
  functions: [
    { name: "schedule (vllm/v1/core/sched/scheduler.py)", before_us: 900, inside_us: 0, share: 0.1 },
  ],
} as unknown as Serving;

function show(one: Serving | undefined) {
  return renderPart(<EngineSteps serving={one} />);
}

it("has a row for each kind of step, without what the server does not state", () => {
  show(serving);
  const table = screen.getByRole("table", { name: "Engine steps by kind" });
  const rows = within(table)
    .getAllByRole("row")
    .slice(1)
    .map((row) => within(row).getAllByRole("cell"));
  expect(rows.map((cells) => cells.map((cell) => plain(cell.textContent)))).toEqual([
    ["Prefill", "1", "87 ms", "2", "4,096", "47,080", "90.0%", ""],
    ["Decode", "8", "26.8 ms", "4", "", "", "87.4%", "290 µs"],
  ]);
  expect(plain(screen.getByRole("region").textContent)).toContain("vLLM · 9 steps in the step window");
});

it("says whether a request was there while nothing ran", () => {
  show({ ...serving, waiting_us: 5_000 });
  expect(plain(document.body.textContent)).toContain("there was no batch to run: no request was left.");
  cleanup();
  show({ ...serving, waiting_us: 5_000, waits_for_engine: true });
  expect(plain(document.body.textContent)).toContain("its recording does not show");
});

it("is not there for other jobs", () => {
  show(undefined);
  expect(screen.queryByRole("region")).toBeNull();
});
