// What the page says in several places, on a report as the command writes it: the page, JSON and text have one figure.

import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { time } from "../base/format";
import { plain } from "../base/format.testdata";
import { gainOf, savedLater, stepAfter, toFix } from "../state/gain";
import { gainOfRow } from "../state/runs";
import type { Report, RunRow, TraceEntry } from "../wire/report";
import { renderPart } from "./page.testdata";
import Summary from "./summary/Summary";

const report = JSON.parse(readFileSync("../tests/golden/input_pipeline.json", "utf8")) as Report;
const text = readFileSync("../tests/golden/input_pipeline.txt", "utf8").replace(/\s+/g, " ");

const first = report.findings[0];
if (!first?.saving || !report.plan || !report.step_time) throw new Error("the report has no plan");
const { saving, plan, step_time: step } = { ...first, ...report } as Required<Report & typeof first>;
const gain = gainOf(saving);
const afterFirst = stepAfter(report).get(0);
const entry = { id: "t", run: "r", kind: "trace" } as TraceEntry;

/** How often each figure is said. */
function oftenIn(words: string, figures: RegExp): Map<string, number> {
  const found = words.match(figures) ?? [];
  return new Map(found.map((each) => [each, found.filter((other) => other === each).length]));
}

const timesIn = (words: string) => oftenIn(words, /[\d,.]+ (?:ms|µs|s)(?![a-z])/g);

describe("the page", () => {
  it("begins the summary, the findings and the plan with one finding", () => {
    expect(toFix(report)).toBe(first);
    expect(plan?.fixes[0]?.finding).toBe(0);
    expect(savedLater(report, first)).toBe("");
  });

  it("has one step time", () => {
    expect(gain?.before).toBe(time(step?.unprofiled_us ?? 0));
  });

  it("has one step time after the first fix, in the summary, the findings and the table of runs", () => {
    const { low_share: low_saving_share, high_share: saving_share } = { ...saving };
    const row = { unprofiled_step_us: step?.unprofiled_us, saving_share, low_saving_share } as RunRow;
    expect(gain?.after).toBe(afterFirst);
    const inTable = gainOfRow(row);
    expect(gain?.after).toContain(inTable?.after);
    expect(gain?.share).toContain(inTable?.share);
  });

  it("says the account and the verdict of the command", () => {
    renderPart(<Summary {...{ report, entry }} />);
    // What is small is one row here, and a row each in full text.
    const rows = document.querySelectorAll('.gd-legend tr:not([data-part="other"])');
    const shown = [...rows].flatMap((row) => [...timesIn(plain(row.textContent)).keys()]);
    expect(shown.length).toBeGreaterThan(4);
    expect(shown.filter((each) => !text.includes(each))).toEqual([]);
    expect(text).toContain(plain(report.verdict?.sentence));
  });

  it("says no time and no share twice on the first screen", () => {
    const { container } = renderPart(<Summary {...{ report, entry }} />);
    const shown = [...container.querySelectorAll(".gd-top, .gd-findings")].map((part) => part.textContent);
    const words = plain(shown.join(" "));
    const twice = [...timesIn(words), ...oftenIn(words, /\d+\.\d%/g)].filter(([, often]) => often > 1);
    expect(twice).toEqual([]);
  });

  it("says the rate of a leak once, and its title not in the verdict", () => {
    const title = "GPU 0 memory grows by 24.0 MiB per step: retained autograd graph";
    const verdict = {
      ...report.verdict,
      headline: "Memory leak on GPU 0: 24.0 MiB per step",
      sentence: `${title}. The GPU was busy.`,
    };
    const leak = { ...first, ...{ rule: "GD401", title, cost_us: 0, cost_bytes_per_step: 24 * 2 ** 20 } };
    const leaking = { ...report, verdict, findings: [leak], plan: undefined } as Report;
    const { container } = renderPart(<Summary {...{ report: leaking, entry }} />);
    const words = plain(container.textContent);
    expect(words).toContain("Fix first: GPU 0 memory grows: retained autograd graph");
    expect([...oftenIn(words, /24(\.0)? MiB/g).values()]).toEqual([1]);
    expect(words).toContain("The GPU was busy.");
  });

  it("says where to look first as the command does, and once", () => {
    const { container } = renderPart(<Summary {...{ report, entry }} />);
    const where = `look first ${report.verdict?.where}`;
    expect(text).toContain(where);
    expect(plain(container.querySelector(".gd-verdict")?.textContent).split(where)).toHaveLength(2);
  });
});
