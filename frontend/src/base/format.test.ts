import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import {
  bytes,
  codePlace,
  column,
  count,
  exactTime,
  moment,
  figures,
  percent,
  plural,
  sentence,
  time,
  timeBeside,
  timeMark,
  withUnit,
} from "./format";
import { plain } from "./format.testdata";

/** What Python's formatter is tested with, too. JSON has no NaN and no infinity: they are written as text. */
const VECTORS = JSON.parse(readFileSync("../tests/wording/format_vectors.json", "utf8")) as {
  readonly time_us: [number | string, string][];
  readonly size_bytes: [number | string, string][];
  readonly figures: [number | string, string][];
  readonly share: [number | string, number | string, string][];
  readonly count: [number, ...string[]][];
  readonly column_us: [(number | string)[], number | string, string[], string][];
};

describe("Python writes the same", () => {
  it.each(VECTORS.time_us)("time %s", (us, text) => {
    expect(time(Number(us))).toBe(text);
  });
  it.each(VECTORS.size_bytes)("size %s", (size, text) => {
    expect(bytes(Number(size))).toBe(text);
  });
  it.each(VECTORS.figures)("figures %s", (value, text) => {
    expect(figures(Number(value))).toBe(text);
  });
  it.each(VECTORS.share)("share %s of %s", (part, whole, text) => {
    expect(percent(Number(part), Number(whole))).toBe(text);
  });
  it.each(VECTORS.count)("count %s %s", (n, ...words) => {
    const text = words.pop();
    const [one, many] = words;
    expect(one === undefined ? count(n) : plural(n, one, many)).toBe(text);
  });
  it.each(VECTORS.column_us)("column %j of %s", (parts, total, shown, sum) => {
    expect(column(parts.map(Number), Number(total))).toEqual({ parts: shown, total: sum });
  });
});

it("prints parts that add up to the printed total", () => {
  const printed = (text: string) => Math.round(Number.parseFloat(text.replaceAll(",", "")) * 100);
  const parts = [133_333.3, 133_333.3, 133_333.4, 1_234.567];
  const total = parts.reduce((sum, part) => sum + part, 0);
  const shown = column(parts, total);
  expect(shown.parts.map(printed).reduce((sum, part) => sum + part, 0)).toBe(printed(shown.total));
});

it("shows nanoseconds exactly on demand", () => {
  expect(exactTime(1234567.891)).toBe("1,234,567.891\u00a0µs");
});

it("gives a moment on the ruler the decimals of its grid", () => {
  expect(plain(moment(1_500_000, 500_000))).toBe("1.5 s");
  expect(plain(moment(1500, 0.5))).toBe("1.5000 ms");
  expect(plain(moment(0, 20))).toBe("0 µs");
});

it("writes a mark of a scale with no more decimals than it needs", () => {
  const marks = [0, 1.5, 2, 100, 1536, 0.255].map((value) => plain(withUnit(value, 2, "GiB")));
  expect(marks).toEqual(["0 GiB", "1.5 GiB", "2 GiB", "100 GiB", "1,536 GiB", "0.26 GiB"]);
});

it("writes sentences", () => {
  expect([sentence("no stacks"), sentence("Done."), sentence("")]).toEqual(["No stacks.", "Done.", ""]);
});

describe("a place in the code", () => {
  const place = { file: "train.py", line: 12, line_kind: "DEFINITION", function: "step" };
  it.each([
    [place, "step (train.py, defined at line 12)"],
    [{ ...place, line_kind: "RUNNING" }, "train.py:12 in step"],
    [{ ...place, line: 0, line_kind: "UNKNOWN" }, "step (train.py)"],
    [{ ...place, file: "" }, "step"],
    [{ ...place, function: "" }, "train.py, defined at line 12"],
    [{ ...place, file: "", function: "" }, ""],
  ])("%s", (where, text) => {
    expect(codePlace(where)).toBe(text);
  });
});

it("writes a time in the unit of one beside it, unless it is far smaller", () => {
  expect(plain(timeBeside(592_000, 1_210_000))).toBe("0.592 s");
  expect(plain(timeBeside(821, 2_440))).toBe("0.821 ms");
  expect(plain(timeBeside(2_000_000, 1_210_000))).toBe("2 s");
  expect(plain(timeBeside(12_000, 1_210_000))).toBe("12 ms");
  expect(plain(timeBeside(1_210_000, 5_000))).toBe("1.21 s");
});

it("writes the marks of a scale in one unit", () => {
  expect([0, 500, 1_000].map((us) => plain(timeMark(us, 1_000)))).toEqual(["0 ms", "0.5 ms", "1 ms"]);
});
