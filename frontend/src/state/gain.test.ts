import { describe, expect, it } from "vitest";
import { plain } from "../base/format.testdata";
import {
  Finding_Severity,
  type DeviceMemory,
  type Finding,
  type Place,
  type Report,
  type Saving,
} from "../wire/report";
import {
  confidenceOf,
  firstBlock,
  gainOf,
  inColumn,
  ownPlace,
  savedLater,
  savedShort,
  stepAfter,
  toFix,
} from "./gain";

const saving = (some: Partial<Saving>): Saving => ({
  ...{ low_us: 0, high_us: 40_000, low_share: 0, high_share: 0.4, basis: "at most" },
  ...{ low_per_step_us: 0, high_per_step_us: 4_000, beyond: "" },
  ...{ likely_us: 0, likely_share: 0, likely_per_step_us: 0 },
  ...{ least_possible_share: 0, possible_share: 0.4, pairs: 3 },
  ...some,
});
const replayed = saving({
  ...{ low_us: 20_000, low_share: 0.2, low_per_step_us: 2_000, basis: "replayed" },
  ...{ likely_us: 30_000, likely_share: 0.3, likely_per_step_us: 3_000 },
});
const finding = (some: Partial<Finding>): Finding =>
  ({
    rule: "GD201",
    cost_us: 5,
    cost_bytes: 0,
    cost_bytes_per_step: 0,
    severity: Finding_Severity.WARNING,
    places: [],
    ...some,
  }) as Finding;

describe("the gain of a fix", () => {
  it("is the step before and after", () => {
    const gain = gainOf(replayed);
    expect(plain(`${gain?.before} → ${gain?.after} ${gain?.of}, ${gain?.share}`)).toBe(
      "10 ms → 7 ms (80% range 6 to 8 ms) per step, saves 30.0% (20.0% to 40.0%)",
    );
    expect(plain(savedShort(finding({ saving: replayed })))).toBe("saves 3 ms (2 to 4 ms) per step");
  });

  it("is the best case where only a bound is known", () => {
    expect(plain(gainOf(saving({}))?.after)).toBe("6 ms at best");
    expect(plain(savedShort(finding({ saving: saving({}) })))).toBe("saves at most 4 ms per step");
  });

  it("has the unit of the step, however long what is left of it is", () => {
    const most = saving({
      low_share: 0.376,
      likely_share: 0.4,
      high_share: 0.512,
      high_per_step_us: 620_000,
    });
    const gain = gainOf(most);
    expect(plain(`${gain?.before} → ${gain?.after}`)).toBe("1.21 s → 0.727 s (80% range 0.591 to 0.756 s)");
    const short = saving({ high_us: 620_000, high_share: 0.512, high_per_step_us: 620_000 });
    expect(plain(savedShort(finding({ saving: short })))).toBe("saves at most 0.620 s per step");
    const certain = saving({ low_us: 977, high_us: 977, high_share: 0.02, high_per_step_us: 977 });
    expect(plain(savedShort(finding({ saving: { ...certain, low_per_step_us: 977 } })))).toBe(
      "saves 0.977 ms per step",
    );
  });

  it("is of the step window without steps", () => {
    const gain = gainOf(saving({ high_per_step_us: 0 }));
    expect(plain(`${gain?.before} → ${gain?.after} ${gain?.of}`)).toBe(
      "100 ms → 60 ms at best over the step window",
    );
  });

  it("is memory for findings about memory, and nothing where nothing is known", () => {
    expect(plain(savedShort(finding({ cost_bytes: 2 ** 30 })))).toBe("frees 1 GiB");
    expect(plain(savedShort(finding({ cost_bytes: 1, cost_bytes_per_step: 2 ** 20 })))).toBe(
      "saves 1 MiB per step",
    );
    expect(savedShort(finding({}))).toBe("");
    expect(savedShort(finding({ saving: saving({ high_us: 0, basis: "replayed" }) }))).toBe(
      "saves nothing by itself",
    );
    expect(gainOf(undefined)).toBeNull();
  });

  it("says how sure it is, with the error of the replay", () => {
    const plan = { fixes: [], whole_us: 0, error_share: 0.01, per_step: true };
    expect(confidenceOf(finding({ saving: replayed }), plan)).toContain("with 1.0% error.");
    expect(confidenceOf(finding({ saving: replayed }), plan)).toContain(
      "The range rests on 3 fixes of this kind that were timed before and after.",
    );
    const rare = saving({ ...replayed, pairs: 0 });
    expect(confidenceOf(finding({ saving: rare }), plan)).toContain("No fix of this kind was timed");
    expect(confidenceOf(finding({ saving: saving({ basis: "replayed" }) }), plan)).toMatch(
      /^Low: upper bound only\. /,
    );
    const beyond = saving({ beyond: "the host gets ahead" });
    expect(confidenceOf(finding({ saving: beyond }), plan)).toContain(
      "A fix can save more than the cost, because the host gets ahead.",
    );
    const bound = saving({ basis: "at most; other findings count the same time" });
    expect(confidenceOf(finding({ saving: bound }), plan)).toBe(
      "Low: upper bound only. Other findings include the same time.",
    );
  });

  it("of growing memory is the measured growth, and of a failure there is none", () => {
    const trend = {
      low_bytes_per_step: 1024,
      high_bytes_per_step: 2048,
      steps: 5,
      unit: "step",
      word: "step",
    };
    const memory = { trend } as DeviceMemory;
    expect(plain(confidenceOf(finding({ cost_bytes_per_step: 1500 }), undefined, memory))).toBe(
      "The floor of allocated memory rises by 1 to 2 KiB per step (95% confidence, over 5 steps).",
    );
    expect(confidenceOf(finding({ cost_bytes: 1500 }), undefined, memory)).toBe("");
  });
});

it("names the user's own function before the one of a package that it calls", () => {
  const own = { file: "train.py", function: "main" } as Place;
  const inside = { file: "torch/x.py", function: "f", caller: own } as Place;
  const operator = { file: "", function: "", operator: "aten::mm" } as Place;
  expect(ownPlace([operator, inside])).toEqual({ own, inside });
  expect(ownPlace([operator])).toEqual({ own: operator, inside: null });
  expect(ownPlace([])).toBeNull();
  expect(ownPlace([{ ...operator, operator: "" }])).toBeNull();
});

it("shows the first way to fix it", () => {
  expect(firstBlock("\na = 1\nb = 2\n\nc = 3\n")).toBe("a = 1\nb = 2");
  expect(firstBlock("# This:\nfrom a import b\n\nb()\n\nc()")).toBe("# This:\nfrom a import b\n\nb()");
  expect(firstBlock("import a")).toBe("import a");
});

it("gives the step after each planned fix", () => {
  const plan = {
    fixes: [
      {
        ...{ finding: 2, rule: "", name: "", saving_us: 1 },
        least_us: 5_000,
        likely_us: 7_000,
        most_us: 10_000,
      },
      {
        ...{ finding: 3, rule: "", name: "", saving_us: 1 },
        least_us: 4_000,
        likely_us: 5_000,
        most_us: 6_000,
      },
    ],
    ...{ whole_us: 0, error_share: 0, per_step: true },
  };
  const report = { plan, step_time: { unprofiled_us: 10_000 } } as unknown as Report;
  expect(plain(stepAfter(report).get(2))).toBe("7 ms, 5 ms at best");
  expect(plain(stepAfter(report).get(3))).toBe("5 ms (80% range 4 to 6 ms)");
  expect(plain(inColumn(stepAfter(report).get(3) ?? ""))).toBe("5 ms (4 to 6 ms)");
  expect(plain(inColumn(stepAfter(report).get(2) ?? ""))).toBe("7 ms, 5 ms at best");
});

it("says what a fix saves once those before it are made", () => {
  const [one, two] = [finding({}), finding({})];
  const fix = (at: number, saving_us: number) => ({
    finding: at,
    rule: "",
    name: "",
    saving_us,
    least_us: 0,
    likely_us: 0,
    most_us: 0,
  });
  const plan = { fixes: [fix(0, 9_000), fix(1, 344_000)] };
  const report = { plan, findings: [one, two] } as unknown as Report;
  expect(savedLater(report, one)).toBe("");
  expect(plain(savedLater(report, two))).toBe("saves 344 ms");
});

it("puts first what costs something", () => {
  const hint = finding({ severity: Finding_Severity.INFO, cost_us: 0 });
  expect(toFix({ findings: [hint] } as unknown as Report)).toBeNull();
  const noStacks = finding({ rule: "GD903", severity: Finding_Severity.INFO });
  const slow = finding({});
  expect(toFix({ findings: [noStacks, slow] } as unknown as Report)).toBe(slow);
  expect(toFix({ findings: [] } as unknown as Report)).toBeNull();
  const leak = finding({ cost_us: 0, cost_bytes_per_step: 5 });
  expect(toFix({ findings: [leak] } as unknown as Report)).toBe(leak);
  const computing = finding({ rule: "GD514", cost_us: 0, severity: Finding_Severity.INFO });
  expect(toFix({ findings: [computing, leak] } as unknown as Report)).toBe(leak);
  expect(toFix({ findings: [computing] } as unknown as Report)).toBeNull();
});
