import { describe, expect, it } from "vitest";
import { covers, span } from "../../base/viewport";
import { rangeOf, viewOfArrow, viewOfEvent } from "./goTo";

const bounds = { start_us: 0, end_us: 1_000_000 };
const view = { start_us: 2000, end_us: 3000 };
const event = (start_us: number, duration_us: number) => ({ start_us, duration_us });

describe("going to an event", () => {
  const to = (start_us: number, duration_us: number) =>
    viewOfEvent(event(start_us, duration_us), view, bounds);

  it("keeps the view if the event can be seen there", () => {
    expect(to(2500, 100)).toBeNull();
  });

  it("keeps the zoom if the event could be seen in it, and has the event in the middle", () => {
    expect(to(5000, 100)).toEqual({ start_us: 4550, end_us: 5550 });
    // Half of it is out of view.
    expect(to(2950, 100)).toEqual({ start_us: 2500, end_us: 3500 });
  });

  it("zooms in on an event that is too short to be seen", () => {
    const closer = to(2500, 1);
    expect(closer).toEqual({ start_us: 2490.5, end_us: 2510.5 });
  });

  it("zooms out for an event longer than the view, with room around it", () => {
    const long = event(10_000, 8000);
    const wider = viewOfEvent(long, view, bounds);
    expect(wider && covers(wider, rangeOf(long))).toBe(true);
    expect(wider && span(wider)).toBeGreaterThan(8000);
  });

  it("shows some microseconds of an event without duration", () => {
    expect(to(2500, 0)).toEqual({ start_us: 2495, end_us: 2505 });
  });

  it("does not zoom closer than a recording that is short itself", () => {
    const short = { start_us: 0, end_us: 8 };
    expect(viewOfEvent(event(4, 0.001), short, short)).toBeNull();
  });
});

describe("following an arrow", () => {
  const launch = event(2100, 10);
  const kernel = event(6000, 500);

  it("shows both of its ends, with room around them, in either direction", () => {
    const both = viewOfArrow(launch, kernel, view);
    expect(both).toEqual({ start_us: 1000, end_us: 7600 });
    expect(viewOfArrow(kernel, launch, view)).toEqual(both);
    expect(viewOfArrow(launch, kernel, null)).toEqual(both);
  });

  it("keeps the view if both are seen", () => {
    expect(viewOfArrow(launch, kernel, { start_us: 0, end_us: 10_000 })).toBeNull();
  });

  it("zooms in on the end that is too short to be seen next to the other one", () => {
    expect(viewOfArrow(kernel, launch, { start_us: 0, end_us: 10_000 })).toEqual({
      start_us: 2005,
      end_us: 2205,
    });
  });
});
