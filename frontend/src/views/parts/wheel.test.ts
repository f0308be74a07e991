import { describe, expect, it } from "vitest";
import { span, toPixel } from "../../base/viewport";
import { scrolls, wheeled, type Turn } from "./wheel";

const bounds = { start_us: 0, end_us: 10_000 };
const sight = { view: { start_us: 2000, end_us: 3000 }, bounds, width: 1000 };
const turned = (turn: Partial<Turn>): Turn => ({
  deltaX: 0,
  deltaY: 0,
  deltaMode: 0,
  shiftKey: false,
  ...turn,
});

describe("the wheel", () => {
  it("zooms in upwards and out downwards, and keeps the moment under the pointer", () => {
    const closer = wheeled(turned({ deltaY: -100 }), 250, sight);
    const wider = wheeled(turned({ deltaY: 100 }), 250, sight);
    expect(span(closer)).toBeLessThan(1000);
    expect(span(wider)).toBeGreaterThan(1000);
    for (const view of [closer, wider]) expect(toPixel(view, 2250, 1000)).toBeCloseTo(250);
  });

  it("pans with Shift, and where it turns sideways", () => {
    const right = { start_us: 2100, end_us: 3100 };
    expect(wheeled(turned({ deltaY: 100, shiftKey: true }), 250, sight)).toEqual(right);
    expect(wheeled(turned({ deltaX: 100, deltaY: 20 }), 250, sight)).toEqual(right);
  });

  it("turns as far by lines as by pixels", () => {
    const byLine = turned({ deltaY: 3, deltaMode: WheelEvent.DOM_DELTA_LINE });
    const lines = span(wheeled(byLine, 0, sight));
    const pixels = span(wheeled(turned({ deltaY: 100 }), 0, sight));
    expect(lines / pixels).toBeCloseTo(1, 1);
  });

  it("scrolls only with the whole recording in view, where zooming out does nothing", () => {
    const whole = { view: bounds, bounds };
    const down = turned({ deltaY: 100 });
    const up = turned({ deltaY: -100 });
    expect(scrolls(down, sight, 0)).toBe(false);
    expect(scrolls(down, whole, 0)).toBe(true);
    // Upwards it zooms in, unless the lanes can scroll back.
    expect(scrolls(up, whole, 0)).toBe(false);
    expect(scrolls(up, whole, 40)).toBe(true);
    expect(scrolls(turned({ deltaY: 100, shiftKey: true }), whole, 40)).toBe(false);
  });
});
