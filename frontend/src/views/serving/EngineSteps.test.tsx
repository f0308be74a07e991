import { cleanup, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { plain } from "../../base/format.testdata";
import { table } from "../../base/tables.testdata";
import type { Report, Serving } from "../../wire/report";
import { renderPart } from "../page.testdata";
import { EngineSteps } from "./EngineSteps";

const serving: Serving = {
  ...{ server: "vLLM", marked: true, sentence: "", steps: 9, waiting_us: 0, waits_for_engine: false },
};
const tables = [table("engine_steps", { kind: ["text", ["Prefill", "Decode"]] })];

function show(one: Serving | undefined): string {
  renderPart(<EngineSteps report={{ serving: one, tables } as unknown as Report} />);
  return plain(document.body.textContent);
}

it("says whose steps they are, and whether a request was there while nothing ran", () => {
  expect(show(serving)).toContain("vLLM · 9 steps in the step window");
  cleanup();
  expect(show({ ...serving, waiting_us: 5_000 })).toContain(
    "there was no batch to run: no request was left.",
  );
  cleanup();
  const waited = { ...serving, waiting_us: 5_000, waits_for_engine: true };
  expect(show(waited)).toContain("its recording does not show");
});

it("is not there for other jobs", () => {
  show(undefined);
  expect(screen.queryByRole("region")).toBeNull();
});
