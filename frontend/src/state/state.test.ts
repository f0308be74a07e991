import { beforeEach, describe, expect, it } from "vitest";
import { plain } from "../base/format.testdata";
import type { Device, Finding, HostSegment, Report, RunRow, TraceEntry } from "../wire/report";
import { accountParts, stepsOf, window_us, windowParts } from "./account";
import {
  inRun,
  insteadOf,
  likelyBases,
  matches,
  levels,
  newerThan,
  newest,
  sameWork,
  spanLabel,
} from "./choose";
import { activitiesOf, longest } from "./gap";
import { costText, findingKeys, groupedByReason } from "./findings";
import { linkOf, usePage } from "./store";

function entry(
  id: string,
  run: string,
  worker: string,
  modified_s: number,
  state: TraceEntry["state"] = "ready",
): TraceEntry {
  return {
    id,
    run,
    worker,
    span: id,
    size_bytes: 1,
    modified_s,
    state,
    error: undefined,
    limiter: "unknown",
    sentence: "",
    writing: false,
    content: "c",
    kind: "trace",
    origin: "",
    of_rank: false,
  };
}

const traces = [
  entry("1", "a", "w0", 10),
  entry("2", "a", "w0", 20),
  entry("3", "a", "w1", 15),
  entry("4", "b", "w1", 30, "failed"),
];

describe("choosing", () => {
  it("compares snapshots of one folder, unless their names say that they are of ranks", () => {
    const [before, after] = ["1", "2"].map((id) => ({
      ...entry(id, "a", `w${id}`, Number(id)),
      kind: "snapshot" as const,
    })) as [TraceEntry, TraceEntry];
    expect(likelyBases([before, after], after, 3)).toEqual([
      { base: before, why: "the recording before this one" },
    ]);
    const ranks = [before, after].map((one) => ({ ...one, of_rank: true })) as [TraceEntry, TraceEntry];
    expect(likelyBases(ranks, ranks[1], 3)).toEqual([]);
  });

  it("selects the newest readable file", () => {
    expect(newest(traces)?.id).toBe("2");
    expect(newest(traces.slice(3))?.id).toBe("4");
    expect(newest([])).toBeNull();
  });

  it("keeps the worker when the run changes", () => {
    expect(inRun(traces, "a", "w1")?.id).toBe("3");
    expect(inRun(traces, "a", "w7")?.id).toBe("2");
  });

  it("shows the newest complete recording of the same worker instead of one that is gone", () => {
    const gone = entry("gone", "b", "w0", 6);
    const all = [
      entry("old", "b", "w0", 5),
      entry("young", "b", "w0", 7),
      { ...entry("half", "b", "w0", 8), writing: true },
      entry("other run", "c", "w0", 9),
    ];
    expect(insteadOf(all, gone)?.id).toBe("young");
    expect(insteadOf(all, entry("gone", "d", "w0", 6))?.id).toBe("other run");
    expect(insteadOf(all, null)?.id).toBe("other run");
    expect(insteadOf([], gone)).toBeNull();
  });

  it("finds later recordings of the same worker, the newest first", () => {
    const [shown] = traces;
    if (!shown) throw new Error("no trace");
    const later = [entry("5", "a", "w0", 40), entry("6", "a", "w0", 50, "failed"), entry("7", "b", "w0", 60)];
    expect(newerThan([...traces, ...later], shown).map(({ id }) => id)).toEqual(["5", "2"]);
    expect(newerThan(traces.slice(1, 2), shown).map(({ id }) => id)).toEqual(["2"]);
    expect(newerThan([shown], shown)).toEqual([]);
  });

  it("offers the recording before, then the newest of other runs, to compare with", () => {
    const shown = entry("5", "a", "w0", 40);
    const others = [entry("6", "c", "w1", 5), entry("7", "c", "w0", 3), entry("8", "d", "w0", 60)];
    const ids = (most: number) =>
      likelyBases([...traces, shown, ...others], shown, most).map(({ base }) => base.id);
    expect(ids(8)).toEqual(["2", "8", "7"]);
    expect(ids(2)).toEqual(["2", "8"]);
  });

  it("offers a run of the same folder before newer ones", () => {
    const shown = entry("5", "jobs/slow/before", "w0", 1);
    const others = [
      entry("6", "new", "w0", 9),
      entry("7", "jobs/x", "w0", 5),
      entry("8", "jobs/slow/after", "w0", 2),
    ];
    const offered = (alike?: ReadonlySet<string>) =>
      likelyBases([shown, ...others], shown, 3, alike).map(({ base, why }) => [base.id, why]);
    expect(offered()).toEqual([
      ["8", "same folder"],
      ["7", ""],
      ["6", ""],
    ]);
    expect(offered(new Set(["new"]))).toEqual([
      ["8", "same folder"],
      ["6", "same input shapes"],
      ["7", ""],
    ]);
  });

  it("offers a later recording of the run where there is none before", () => {
    const [later, shown] = [entry("5", "a", "w0", 9), entry("6", "a", "w0", 1)];
    const offered = likelyBases([later, shown, entry("7", "b", "w0", 3)], shown, 3);
    expect(offered.map(({ base, why }) => [base.id, why])).toEqual([
      ["5", "a later recording than this one"],
      ["7", ""],
    ]);
  });

  it("offers runs with the same input shapes before other runs, and says so", () => {
    const work = (run: string, codes: readonly number[]) => ({ run, work: codes }) as RunRow;
    const rows = [work("a", [1, 2, 3, 4]), work("b", [1, 2, 9]), work("c", [1, 8, 9, 10]), work("d", [])];
    const alike = sameWork(rows, "a");
    expect([...alike]).toEqual(["b"]);
    expect(sameWork(rows, "d").size).toBe(0);
    const shown = entry("5", "a", "w0", 1);
    const others = [entry("6", "b", "w0", 5), entry("7", "c", "w0", 30), entry("8", "a_old", "w0", 2)];
    expect(likelyBases([shown, ...others], shown, 8, alike).map(({ base, why }) => [base.run, why])).toEqual([
      ["a_old", "almost the same name"],
      ["b", "same input shapes"],
      ["c", ""],
    ]);
  });

  it("lists each run once, and the workers and spans of the selected one", () => {
    const found = levels(traces, traces[2] ?? null);
    expect([...found.runs.keys()]).toEqual(["a", "b"]);
    expect([...found.workers.keys()]).toEqual(["w0", "w1"]);
    expect(found.spans.map((span) => span.id)).toEqual(["3"]);
  });

  it("searches for parts of a name, in any order", () => {
    const found = (text: string) => ["team_3/Run_12", "team_3/run_9"].filter((name) => matches(name, text));
    expect(found("12 team_3")).toEqual(["team_3/Run_12"]);
    expect(found(" RUN ")).toHaveLength(2);
    expect(found("run_9 12")).toEqual([]);
    expect(found("")).toHaveLength(2);
  });

  it("formats a span that is a time in ms or ns, and leaves others unchanged", () => {
    expect(spanLabel("1623143089861")).toMatch(/^2021-06-0[78] \d\d:\d\d:49$/);
    expect(spanLabel("1623143089861000000")).toBe(spanLabel("1623143089861"));
    expect(spanLabel("step_12")).toBe("step_12");
    expect(spanLabel("")).toBe("–");
  });
});

describe("the store", () => {
  beforeEach(() => {
    usePage.setState(usePage.getInitialState());
  });

  it("stores the device of the memory view and the selected range in a link", () => {
    const page = usePage.getState();
    const link = { view: "memory" as const, trace: "1", memory: -1, from_us: 5, to_us: 7.5 };
    page.openTrace("1");
    page.showMemoryOf(-1);
    page.setSelection({ start_us: 5, end_us: 7.5 });
    expect(linkOf(usePage.getState())).toEqual(link);
    usePage.setState(usePage.getInitialState());
    page.openLink(link);
    expect(usePage.getState()).toMatchObject({ memoryOf: -1, selection: { start_us: 5, end_us: 7.5 } });
  });

  it("resets the state of a trace when another is opened", () => {
    const page = usePage.getState();
    const view = "timeline" as const;
    page.openLink({ view, trace: "1", finding: "GD101", start_us: 1, end_us: 2 });
    page.openGap({ device: 0, gap: 1 });
    const range = { start_us: 1, end_us: 2 };
    const gap = { device: 0, gap: 1 };
    expect(linkOf(usePage.getState())).toEqual({ view, trace: "1", finding: "GD101", ...range, gap });
    page.openTrace("2");
    expect(linkOf(usePage.getState())).toEqual({ view, trace: "2" });
    expect(usePage.getState().gap).toBeNull();
  });

  it("expands one finding at a time, and collapses it again", () => {
    const { toggleFinding } = usePage.getState();
    toggleFinding("GD101");
    toggleFinding("GD201");
    expect(usePage.getState().finding).toBe("GD201");
    toggleFinding("GD201");
    expect(usePage.getState().finding).toBeNull();
  });
});

describe("findings", () => {
  const finding = (rule: string) => ({ rule }) as Finding;

  it("have unique keys, even if one rule has several findings", () => {
    expect(findingKeys(["GD1", "GD2", "GD1"].map((rule) => finding(rule)))).toEqual(["GD1", "GD2", "GD1-2"]);
  });

  it("that could not be checked are grouped by reason", () => {
    const unchecked = (rule: string, reason: string) => ({
      rule,
      name: rule,
      reason,
      how_to_record: "so",
      defect: false,
    });
    const items = [unchecked("GD1", "no GPU"), unchecked("GD2", "one step"), unchecked("GD3", "no GPU")];
    const groups = groupedByReason(items).map(({ reason, rules }) => [reason, rules.map(({ rule }) => rule)]);
    expect(groups).toEqual([
      ["no GPU", ["GD1", "GD3"]],
      ["one step", ["GD2"]],
    ]);
  });

  it("cost time or memory", () => {
    const costing = (cost: Partial<Finding>) => {
      const all = { cost_us: 0, cost_bytes: 0, cost_bytes_per_step: 0, memory_device: 0, ...cost };
      const text = costText(all as Finding, 100_000);
      return text && plain(`${text.amount}, ${text.of}`);
    };
    expect(costing({})).toBeNull();
    expect(costing({ cost_us: 25_000 })).toBe("25 ms, 25.0% of the step window");
    expect(costing({ cost_us: 25_000, cost_bytes: 2 ** 31, memory_device: 1 })).toBe("2 GiB, on GPU 1");
    const leak = { cost_bytes: 2 ** 31, cost_bytes_per_step: 2 ** 20, memory_device: -1 };
    expect(costing(leak)).toBe("1 MiB per step, 2 GiB on the host");
  });
});

describe("accounts", () => {
  const device = {
    window_us: 100,
    window_computing_us: 40,
    window_copying_us: 0,
    window_communicating_us: 10,
    window_idle_by_cause: [
      { cause: "latency", us: 20 },
      { cause: "input", us: 30 },
    ],
  } as unknown as Device;

  it("contain the report's nonzero parts in the legend's order", () => {
    expect(windowParts(device)).toEqual([
      { name: "computing", us: 40 },
      { name: "communicating", us: 10 },
      { name: "input", us: 30 },
      { name: "latency", us: 20 },
    ]);
    const step = {
      computing_us: 1,
      copying_us: 2,
      communicating_us: 0,
      idle_by_cause: [],
    };
    expect(accountParts(step).map((part) => part.us)).toEqual([1, 2]);
  });

  it("are of the steps, marked or inferred, or of repetitions that may be parts, on their device only", () => {
    const repeats = { device: 0, are_steps: false, accounts: [{ name: "1" }, { name: "2" }] };
    const parts = { inferred_steps: repeats } as unknown as Report;
    const inferred = { inferred_steps: { ...repeats, are_steps: true } } as unknown as Report;
    const on = (id: number) => ({ id, step_accounts: [{ name: "whole" }] }) as unknown as Device;
    expect(stepsOf(parts, on(0))).toEqual({ accounts: repeats.accounts, inferred: repeats });
    expect(stepsOf(parts, on(1))).toMatchObject({ accounts: [{ name: "whole" }], inferred: null });
    expect(stepsOf(inferred, on(1)).accounts).toEqual([{ name: "whole" }]);
    expect(stepsOf({} as Report, on(0)).inferred).toBeNull();
  });

  it("take shares of the step window, or of the steps if there is no GPU", () => {
    expect(window_us({ devices: [device] } as unknown as Report)).toBe(100);
    const steps = [10, 30].map((start_us) => ({ name: "", start_us, duration_us: 20 }));
    expect(window_us({ devices: [], steps } as unknown as Report)).toBe(40);
  });
});

describe("the host in a gap", () => {
  const segment = (name: string, duration_us: number): HostSegment => ({
    cause: "input",
    name,
    place: "",
    start_us: 0,
    duration_us,
  });

  it("is grouped by activity, in order of first occurrence", () => {
    const found = activitiesOf([segment("read", 5), segment("decode", 50), segment("read", 30)]);
    expect(found.map(({ name, us, times }) => [name, us, times])).toEqual([
      ["read", 35, 2],
      ["decode", 50, 1],
    ]);
  });

  it("is shortened to the longest activities, at least one", () => {
    const found = activitiesOf([segment("tiny", 1), segment("decode", 90), segment("read", 9)]);
    expect(longest(found, 100).map(({ name }) => name)).toEqual(["decode", "read"]);
    expect(longest(found, 1e9).map(({ name }) => name)).toEqual(["decode"]);
  });
});
