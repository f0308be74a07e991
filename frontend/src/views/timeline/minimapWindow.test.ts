import { describe, expect, it } from "vitest";
import { centeredAt, draggedTo, gripAt, movedByKey, type Grip } from "./minimapWindow";

/** One pixel is 10 µs: the window is from 200 to 300 px. */
const width = 1000;
const bounds = { start_us: 0, end_us: 10_000 };
const view = { start_us: 2000, end_us: 3000 };

const gripped = (x: number) => gripAt(x, view, bounds, width);
const dragged = (grip: Grip, from: number, to: number) =>
  draggedTo(to, { grip, x: from, view }, bounds, width);

describe("the window on the minimap", () => {
  it("is held at its edges, which can be missed by a little, or in between", () => {
    expect([195, 200, 205].map(gripped)).toEqual(["start", "start", "start"]);
    expect([295, 305].map(gripped)).toEqual(["end", "end"]);
    expect(gripped(250)).toBe("window");
    expect([100, 800].map(gripped)).toEqual(["new", "new"]);
  });

  it("is drawn anew while it is around everything", () => {
    for (const x of [0, 500, 1000]) expect(gripAt(x, bounds, bounds, width)).toBe("new");
  });

  it("moves as a whole, and stops at the ends of the recording", () => {
    expect(dragged("window", 250, 300)).toEqual({ start_us: 2500, end_us: 3500 });
    expect(dragged("window", 250, -900)).toEqual({ start_us: 0, end_us: 1000 });
  });

  it("moves one edge, also beyond the other one", () => {
    expect(dragged("start", 200, 100)).toEqual({ start_us: 1000, end_us: 3000 });
    expect(dragged("start", 200, 400)).toEqual({ start_us: 3000, end_us: 4000 });
    expect(dragged("end", 300, 700)).toEqual({ start_us: 2000, end_us: 7000 });
    expect(dragged("end", 300, 5000)).toEqual({ start_us: 2000, end_us: 10_000 });
  });

  it("is drawn between the pointer's first place and its last, in either direction", () => {
    expect(dragged("new", 500, 600)).toEqual({ start_us: 5000, end_us: 6000 });
    expect(dragged("new", 500, 400)).toEqual({ start_us: 4000, end_us: 5000 });
    expect(dragged("new", 500, 500)).toBeNull();
  });

  it("has its middle where one clicks, as far as the recording goes", () => {
    expect(centeredAt(700, view, bounds, width)).toEqual({ start_us: 6500, end_us: 7500 });
    expect(centeredAt(10, view, bounds, width)).toEqual({ start_us: 0, end_us: 1000 });
  });

  it("moves by a part of its length with the arrow keys, by all of it with the page keys", () => {
    expect(movedByKey("ArrowRight", view, bounds)).toEqual({ start_us: 2250, end_us: 3250 });
    expect(movedByKey("ArrowLeft", view, bounds)).toEqual({ start_us: 1750, end_us: 2750 });
    expect(movedByKey("PageDown", view, bounds)).toEqual({ start_us: 3000, end_us: 4000 });
    expect(movedByKey("PageUp", view, bounds)).toEqual({ start_us: 1000, end_us: 2000 });
    expect(movedByKey("Tab", view, bounds)).toBeNull();
  });
});
