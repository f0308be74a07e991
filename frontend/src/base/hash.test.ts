import { describe, expect, it } from "vitest";
import { isOurs, readHash, writeHash } from "./hash";

describe("deep links", () => {
  it("come back as they were written", () => {
    const link = { trace: "a/b&c=d #1", finding: "GD101-2", start_us: 12.5, end_us: 9_000_000.125 };
    expect(readHash(writeHash("#gpudiag", link))).toEqual(link);
    const comparison = { view: "compare" as const, trace: "x", base: "y z" };
    expect(readHash(writeHash("#gpudiag", comparison))).toEqual(comparison);
    const shown = { ...link, row: "launches.3", place: 2 };
    expect(readHash(writeHash("#gpudiag", shown))).toEqual(shown);
    const ofGap = { trace: "x", gap: { device: 0, gap: 17 } };
    expect(readHash(writeHash("#gpudiag", ofGap))).toEqual(ofGap);
    const ofRange = { trace: "x", from_us: 1, to_us: 2, within: true };
    expect(readHash(writeHash("#gpudiag", ofRange))).toEqual(ofRange);
    const ofMemory = { trace: "x", memory: -1, from_us: 0, to_us: 1_234_567.891 };
    expect(readHash(writeHash("#gpudiag", ofMemory))).toEqual(ofMemory);
  });

  it("hold one = a token: TensorBoard drops the others", () => {
    const hash = writeHash("#gpudiag", { trace: "x=y" });
    expect(hash.split("&").every((token) => token.split("=").length <= 2)).toBe(true);
  });

  it("leave what other plugins keep there", () => {
    const before = "#gpudiag&p.other.key=1&p.gpudiag.trace=old&p.gpudiag.t0=1&p.gpudiag.t1=2";
    expect(writeHash(before, { trace: "new" })).toBe("#gpudiag&p.other.key=1&p.gpudiag.trace=new");
  });

  it("say nothing where they make no sense", () => {
    expect(readHash("")).toEqual({});
    expect(readHash("#gpudiag&p.gpudiag.view=nothing&p.gpudiag.gap=1")).toEqual({});
    expect(readHash("#scalars&p.other.trace=x")).toEqual({});
    expect(readHash("#gpudiag&p.gpudiag.trace=%E0%A4%A")).toEqual({});
    expect(readHash("#gpudiag&p.gpudiag.t0=5&p.gpudiag.t1=2")).toEqual({});
    expect(readHash("#gpudiag&p.gpudiag.row=launches.3&p.gpudiag.place=-1")).toEqual({});
    expect(readHash("#gpudiag&p.gpudiag.place=2")).toEqual({});
    expect(readHash("#gpudiag&p.gpudiag.memory=0.5&p.gpudiag.s0=3&p.gpudiag.s1=3")).toEqual({});
    expect(readHash("#gpudiag&p.gpudiag.t0=&p.gpudiag.t1=Infinity")).toEqual({});
  });

  it("are not written while another tab owns the address", () => {
    expect(isOurs("#scalars&p.gpudiag.trace=x")).toBe(false);
    expect(isOurs("#gpudiag")).toBe(true);
    expect(isOurs("")).toBe(true);
  });
});
