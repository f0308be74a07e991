// What the page says in several places, on a report as the command writes it.

import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { time } from "../base/format";
import type { Report, RunRow } from "../wire/report";
import { gainOf, savedLater, stepAfter, stepAfterAll, stepBefore, toFix } from "./gain";
import { gainOfRow } from "./runs";

const report = JSON.parse(readFileSync("../tests/golden/input_pipeline.json", "utf8")) as Report;

const first = report.findings[0];
if (!first?.saving || !report.plan || !report.step_time) throw new Error("the report has no plan");
const { saving, plan, step_time: step } = { ...first, ...report } as Required<Report & typeof first>;
const gain = gainOf(saving);

describe("the page", () => {
  it("begins the summary, the findings and the plan with one finding", () => {
    expect(toFix(report)).toBe(first);
    expect(plan?.fixes[0]?.finding).toBe(0);
    expect(savedLater(report, first)).toBe("");
  });

  it("has one step time", () => {
    expect(gain?.before).toBe(time(step?.unprofiled_us ?? 0));
    expect(stepBefore(report)).toBe(gain?.before);
  });

  it("has one step time after the first fix, in the summary, the findings and the table of runs", () => {
    const { low_share: low_saving_share, high_share: saving_share } = { ...saving };
    const row = { unprofiled_step_us: step?.unprofiled_us, saving_share, low_saving_share } as RunRow;
    const best = stepAfter(report).get(0) ?? "";
    expect(gain?.after).toBe(best);
    const inTable = gainOfRow(row);
    expect(gain?.after).toContain(inTable?.after);
    expect(gain?.share).toContain(inTable?.share);
  });

  it("has one step time after all fixes", () => {
    const last = plan?.fixes.at(-1)?.finding ?? -1;
    expect(plan && stepAfterAll(plan, report)).toBe(stepAfter(report).get(last));
  });
});
