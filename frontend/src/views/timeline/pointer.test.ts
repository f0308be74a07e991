import { describe, expect, it } from "vitest";
import { span } from "../../base/viewport";
import { hit } from "../../canvas/hit";
import { deepest, NO_CHOICES, rowsOf } from "../../canvas/rows";
import { HEAD_PX } from "../../canvas/scene";
import { sliceOf } from "../../canvas/slice";
import { queueLane, timelineOf } from "../../canvas/timeline.testdata";
import { drawnRange, grabbed, movesFar, openedBy, pulled } from "./pointer";

/** 1,000 pixels for 1,000 of the recording's 10,000 µs: one pixel is one µs. */
const width = 1000;
const view = { start_us: 2000, end_us: 3000 };
const bounds = { start_us: 0, end_us: 10_000 };
const onLanes = { x: 400, y: HEAD_PX + 20 };
const onRuler = { x: 400, y: HEAD_PX - 20 };

describe("dragging", () => {
  it("pans on the lanes, and selects on the ruler and with Shift", () => {
    expect(grabbed(onLanes, false, view, 0).kind).toBe("pan");
    expect(grabbed(onRuler, false, view, 0).kind).toBe("select");
    expect(grabbed(onLanes, true, view, 0).kind).toBe("select");
  });

  it("begins after a few pixels, so that a click with a shaky hand stays a click", () => {
    const drag = grabbed(onLanes, false, view, 0);
    expect(movesFar(drag, { x: onLanes.x + 2, y: onLanes.y - 2 })).toBe(false);
    expect(movesFar(drag, { x: onLanes.x + 5, y: onLanes.y })).toBe(true);
    // Once begun, it goes on where it began.
    expect(movesFar({ ...drag, moved: true }, onLanes)).toBe(true);
  });

  it("keeps the moment and the lane under the pointer", () => {
    const drag = grabbed(onLanes, false, view, 50);
    const to = pulled(drag, { x: onLanes.x + 100, y: onLanes.y - 30 }, width, bounds);
    expect(to.view).toEqual({ start_us: 1900, end_us: 2900 });
    expect(to.scroll).toBe(80);
  });

  it("stops at the start of the recording without changing the zoom", () => {
    const far = pulled(grabbed(onLanes, false, view, 0), { x: 9000, y: onLanes.y }, width, bounds);
    expect(far.view).toEqual({ start_us: 0, end_us: 1000 });
  });

  it("selects the range between its ends, in either direction, up to the edge of the lanes", () => {
    const drag = grabbed(onRuler, false, view, 0);
    expect(drawnRange(drag, 600, width)).toEqual({ start_us: 2400, end_us: 2600 });
    expect(drawnRange(drag, 100, width)).toEqual({ start_us: 2100, end_us: 2400 });
    expect(drawnRange(drag, 5000, width)).toEqual({ start_us: 2400, end_us: 3000 });
    expect(drawnRange(drag, -50, width)).toEqual({ start_us: 2000, end_us: 2400 });
  });
});

describe("a click", () => {
  const slice = sliceOf({
    ...timelineOf({
      "GPU 0 idle": [
        [100, 50, "input", { gap: 7 }],
        [600, 20, "latency", { gap: 9, count: 3 }],
      ],
      main: [
        [0, 300, "step"],
        [100, 50, "aten::mm", { depth: 1 }],
      ],
    }),
    end_us: 1000,
  });
  const rows = rowsOf(slice, deepest(new Map(), slice), NO_CHOICES);
  const top = (title: string) => rows.rows.find((row) => row.title === title)?.top ?? Number.NaN;
  const clicked = (x: number, y: number) =>
    openedBy(hit(slice, rows, { start_us: 0, end_us: 1000 }, width, x, y), slice);

  it("opens a gap by its number on its device, and closes an event", () => {
    expect(clicked(120, top("GPU 0 idle") + 3)).toEqual({ gap: { device: 0, gap: 7 }, event: null });
  });

  it("opens an event by its place, and closes a gap", () => {
    const inner = clicked(120, top("main") + 20);
    expect(inner).toEqual({ event: { lane: 1, depth: 1, start_us: 100 }, gap: null });
  });

  it("zooms in on merged boxes, which have no details", () => {
    const { view: closer, ...rest } = clicked(605, top("GPU 0 idle") + 3);
    expect(rest).toEqual({});
    expect(closer?.start_us).toBeLessThan(600);
    expect(closer?.end_us).toBeGreaterThan(620);
    expect(closer && span(closer)).toBeLessThan(50);
  });

  it("closes what is open where nothing is, and on a curve", () => {
    expect(clicked(900, top("main") + 3)).toEqual({ gap: null, event: null });
    const queued = sliceOf({ ...timelineOf({}), lanes: [queueLane([[0, 3]], 3)] });
    const laid = rowsOf(queued, new Map(), NO_CHOICES);
    const onCurve = hit(queued, laid, { start_us: 0, end_us: 1000 }, width, 500, 5);
    expect(onCurve?.queued).toEqual([3, 3]);
    expect(openedBy(onCurve, queued)).toEqual({ gap: null, event: null });
  });
});
