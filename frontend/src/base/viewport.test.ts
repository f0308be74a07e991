import { describe, expect, it } from "vitest";
import { tileFor, tileWidth } from "./tiles";
import { ticks } from "./ticks";
import { aired, clamp, covers, pan, span, toPixel, toTime, zoom } from "./viewport";

const bounds = { start_us: 100, end_us: 1_000_100 };

describe("zoom", () => {
  it("keeps the moment under the pointer where it is", () => {
    const view = { start_us: 200_000, end_us: 600_000 };
    const at = toTime(view, 250, 1000);
    const closer = zoom(view, 0.5, at, bounds);
    expect(span(closer)).toBeCloseTo(200_000);
    expect(toPixel(closer, at, 1000)).toBeCloseTo(250);
  });

  it("stops at the whole trace and at the nanosecond", () => {
    expect(zoom(bounds, 4, 500, bounds)).toEqual(bounds);
    let view = bounds;
    for (let n = 0; n < 100; n += 1) view = zoom(view, 0.5, 500_000, bounds);
    expect(span(view)).toBeCloseTo(0.1);
  });
});

describe("pan and clamp", () => {
  it("stop at the ends of the trace without changing the zoom", () => {
    const view = { start_us: 800_000, end_us: 900_000 };
    expect(pan(view, 1e9, bounds)).toEqual({ start_us: 900_100, end_us: 1_000_100 });
    expect(pan(view, -1e9, bounds)).toEqual({ start_us: 100, end_us: 100_100 });
  });

  it("bring a link to nowhere back into the trace", () => {
    for (const wild of [
      { start_us: -5e9, end_us: -4e9 },
      { start_us: 5e12, end_us: 6e12 },
      { start_us: Number.NaN, end_us: Number.NaN },
      { start_us: -Infinity, end_us: Infinity },
    ]) {
      expect(covers(bounds, clamp(wild, bounds))).toBe(true);
    }
  });

  it("leave air around a range", () => {
    expect(aired({ start_us: 1000, end_us: 2000 })).toEqual({ start_us: 750, end_us: 2250 });
  });
});

describe("tiles", () => {
  it("hold the view, wherever it is and however small", () => {
    for (let n = 1; n < 400; n += 1) {
      const length = 600_000 / n;
      const start_us = 100 + ((n * 7919) % Math.floor(1_000_000 - length));
      const view = { start_us, end_us: start_us + length };
      const tile = tileFor(view, bounds);
      expect(covers(tile ?? bounds, view), `view ${n}`).toBe(true);
      expect(covers(bounds, tile ?? bounds)).toBe(true);
    }
  });

  it("are shared by views near each other", () => {
    const tile = tileFor({ start_us: 500_000, end_us: 510_000 }, bounds);
    expect(tileFor({ start_us: 500_300, end_us: 510_500 }, bounds)).toEqual(tile);
  });

  it("are the whole trace for a view of most of it", () => {
    expect(tileFor(bounds, bounds)).toBeNull();
  });

  it("ask for few widths, and never for more than the server gives", () => {
    expect(new Set([1000, 1010, 1020].map(tileWidth)).size).toBe(1);
    expect(tileWidth(100_000)).toBeLessThanOrEqual(8192);
  });
});

it("rules round moments, not more than fit", () => {
  const { at_us, step_us } = ticks({ start_us: 130, end_us: 1130 }, 1000, 110);
  expect(step_us).toBe(200);
  expect(at_us).toEqual([200, 400, 600, 800, 1000]);
});
