import { describe, expect, it } from "vitest";
import { bytes, column, exactTime, moment, percent, plural, sentence, time, mean } from "./format";

/** As a reader sees it: the narrow space is a space. */
const plain = (text: string) => text.replaceAll("\u202f", " ");

describe("time", () => {
  it.each([
    [0, "0 ms"],
    [0.412, "412 ns"],
    [3.4, "3.40 µs"],
    [12.34, "12.3 µs"],
    [999.6, "1.00 ms"],
    [1000, "1 ms"],
    [124_000, "124 ms"],
    [2_130_000, "2.13 s"],
    [200_000_000, "3 min 20 s"],
    [-1500, "-1.50 ms"],
    [Number.NaN, "n/a"],
  ])("%d µs is %s", (us, text) => {
    expect(plain(time(us))).toBe(text);
  });

  it("shows nanoseconds exactly on demand", () => {
    expect(plain(exactTime(1234567.891))).toBe("1,234,567.891 µs");
  });
});

describe("percent", () => {
  it.each([
    [0, 1, "0.0 %"],
    [0.0004, 1, "< 0.1 %"],
    [0.394, 1, "39.4 %"],
    [0.99999, 1, "> 99.9 %"],
    [1, 1, "100 %"],
    [1, 0, "n/a"],
  ])("%d of %d is %s", (part, whole, text) => {
    expect(plain(percent(part, whole))).toBe(text);
  });
});

describe("column", () => {
  const printed = (text: string) => Math.round(Number.parseFloat(plain(text).replaceAll(",", "")) * 100);

  it("prints parts that add up to the printed total", () => {
    const parts = [333_333.3, 333_333.3, 333_333.4, 1_234.567];
    const total = parts.reduce((sum, part) => sum + part, 0);
    const shown = column(parts, total);
    expect(shown.parts.map(printed).reduce((sum, part) => sum + part, 0)).toBe(printed(shown.total));
  });

  it("hides no difference that is really there", () => {
    const shown = column([10_000, 20_000], 90_000);
    expect([...shown.parts, shown.total].map(plain)).toEqual(["10.00 ms", "20.00 ms", "90.00 ms"]);
  });
});

it("gives a moment on the ruler the decimals of its grid", () => {
  expect(plain(moment(1_500_000, 500_000))).toBe("1.5 s");
  expect(plain(moment(1500, 0.5))).toBe("1.5000 ms");
  expect(plain(moment(0, 20))).toBe("0 µs");
});

it("writes sizes in powers of 1,024", () => {
  expect([0, 512, 1536, 3 * 2 ** 30].map((size) => plain(bytes(size)))).toEqual([
    "0 B",
    "512 B",
    "1.50 KiB",
    "3 GiB",
  ]);
});

it("rounds a mean, but never something to nothing", () => {
  expect([703.2, 9.4, 1, 0.0635, 0.000317, 0].map((value) => plain(mean(value)))).toEqual([
    "703",
    "9.40",
    "1",
    "0.06",
    "< 0.01",
    "0",
  ]);
});

it("writes plurals and sentences", () => {
  expect([plural(1, "step"), plural(1200, "step")]).toEqual(["1 step", "1,200 steps"]);
  expect([sentence("no stacks"), sentence("Done."), sentence("")]).toEqual(["No stacks.", "Done.", ""]);
});
