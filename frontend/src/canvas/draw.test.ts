import { expect, it } from "vitest";
import { draw } from "./draw";
import { deepest, NO_CHOICES, rowsOf } from "./rows";
import { HEAD_PX } from "./scene";
import { sliceOf } from "./slice";
import type { Viewport } from "../base/viewport";
import type { Timeline } from "../wire/report";
import { queueLane, timelineOf } from "./timeline.testdata";

/** A canvas that records what is painted. Text is 6 px per character. */
function recorder() {
  const rectangles: { x: number; y: number; w: number; h: number; alpha: number }[] = [];
  const texts: string[] = [];
  const areas: { alpha: number; points: [number, number][] }[] = [];
  let points: [number, number][] = [];
  const context = {
    globalAlpha: 1,
    font: "",
    fillRect(x: number, y: number, w: number, h: number) {
      rectangles.push({ x, y, w, h, alpha: this.globalAlpha });
    },
    fillText: (text: string) => texts.push(text),
    measureText: (text: string) => ({ width: 6 * text.length }),
    save: () => undefined,
    restore: () => undefined,
    beginPath: () => {
      points = [];
    },
    moveTo: (x: number, y: number) => points.push([x, y]),
    lineTo: (x: number, y: number) => points.push([x, y]),
    fill() {
      areas.push({ alpha: this.globalAlpha, points });
    },
    rect: () => undefined,
    clip: () => undefined,
    strokeRect: () => undefined,
  };
  return { context: context as unknown as CanvasRenderingContext2D, rectangles, texts, areas };
}

function drawn(
  timeline: Timeline,
  view = { start_us: 0, end_us: 1000 },
  mark: Viewport | null = null,
  selection: Viewport | null = null,
  lit: readonly Viewport[] | null = null,
) {
  const slice = sliceOf(timeline);
  const record = recorder();
  const rows = rowsOf(slice, deepest(new Map(), slice), NO_CHOICES);
  draw(record.context, {
    width: 1000,
    height: 400,
    view,
    scroll: 0,
    scheme: "light",
    slice,
    rows,
    marks: mark ? [mark] : [],
    mark,
    gap: null,
    selection,
    hover: null,
    event: null,
    arrows: [],
    lit,
    found: [],
  });
  return { ...record, rows };
}

function painted(boxes: Parameters<typeof timelineOf>[0]) {
  const { rectangles, rows, texts } = drawn(timelineOf(boxes));
  const lane = rectangles.filter(({ y, h }) => y === HEAD_PX && h === (rows.rows[0]?.step ?? 0) - 1);
  return { lane, texts };
}

it("paints thousands of tiny neighbors as few rectangles, fainter the less they fill", () => {
  const tiny = Array.from({ length: 4000 }, (_, n) => [n / 4, 0.1, "k"] as const);
  const { lane } = painted({ "GPU 0 stream 7": tiny });
  expect(lane.length).toBeLessThan(10);
  expect(lane[0]?.alpha).toBeCloseTo(0.4, 1);
});

it("shows the length of the selection only if it is in view", () => {
  const selection = { start_us: 200, end_us: 210 };
  const texts = (start_us: number) =>
    drawn(timelineOf({}), { start_us, end_us: start_us + 100 }, null, selection).texts;
  expect(texts(150)).toContain("10\u00a0µs");
  expect(texts(0)).not.toContain("10\u00a0µs");
  expect(texts(300)).not.toContain("10\u00a0µs");
});

it("dims everything outside of the lit ranges, and keeps the shortest of them in sight", () => {
  const lit = [
    { start_us: 600, end_us: 600.001 },
    { start_us: 100, end_us: 300 },
    { start_us: 200, end_us: 400 },
  ];
  const dark = drawn(timelineOf({}), undefined, null, null, lit)
    .rectangles.filter(({ y, alpha }) => y === HEAD_PX && alpha < 1)
    .map(({ x, w }) => [x, x + w]);
  expect(dark).toEqual([
    [0, 100],
    [400, 600],
    [603, 1000],
  ]);
});

it("cuts names to fit their box", () => {
  const { texts } = painted({ "GPU 0 stream 7": [[0, 100, "k".repeat(5000)]] });
  const shown = texts.find((text) => text.startsWith("k")) ?? "";
  expect(shown).toMatch(/^k+…$/);
  expect(shown.length * 6).toBeLessThan(100);
});

it("clips a box that begins before the view and ends after it", () => {
  const { lane } = painted({ "GPU 0 stream 7": [[-1e9, 3e9, "k"]] });
  expect(lane).toHaveLength(1);
  expect(lane[0]?.x).toBeGreaterThanOrEqual(-2);
  expect((lane[0]?.x ?? 0) + (lane[0]?.w ?? 0)).toBeLessThanOrEqual(1002);
});

it("paints a queue as a step chart on the scale of the whole trace, and labels its upper edge", () => {
  const lane = queueLane(
    [
      [0, 0],
      [100, 5, 10],
      [200, 20],
      [300, 0],
    ],
    1024,
  );
  const { areas, texts } = drawn({ ...timelineOf({}), lanes: [{ ...lane, queue_most: 20 }] });
  const bottom = HEAD_PX + 21;
  const room = 20;
  const level = (at: number) => areas.map(({ points }) => (bottom - (points[1 + 2 * at]?.[1] ?? 0)) / room);
  expect([level(0), level(1), level(2), level(3)]).toEqual([
    [0, 0],
    [0.5, 0.25],
    [1, 1],
    [0, 0],
  ]);
  const [most, least] = areas;
  expect(most?.alpha).toBeLessThan(least?.alpha ?? 0);
  expect(most?.points.map(([x]) => x)).toEqual([0, 0, 100, 100, 200, 200, 300, 300, 1000, 1000]);
  expect(texts).toContain("20");
});

it("paints a counter with its unit, and no value below the lane", () => {
  const lane = {
    ...queueLane(
      [
        [0, 1400.5],
        [500, -3],
      ] as const,
      1400.5,
    ),
    kind: "counter" as const,
    unit: "MHz",
  };
  const { areas, texts } = drawn({ ...timelineOf({}), lanes: [lane] });
  expect(texts).toContain("1,401 MHz");
  const bottom = HEAD_PX + 25;
  for (const [, y] of areas.flatMap(({ points }) => points)) expect(y).toBeLessThanOrEqual(bottom);
});

it("paints only the visible part of a queue, from the value that holds at the start of the view", () => {
  const steps = Array.from({ length: 1000 }, (_, n) => [n, n % 7] as const);
  const { areas } = drawn(
    { ...timelineOf({}), lanes: [queueLane(steps, 6)] },
    { start_us: 500.5, end_us: 510.5 },
  );
  expect(areas[0]?.points).toHaveLength(2 * 11 + 2);
  for (const [x] of areas[0]?.points ?? []) {
    expect(x).toBeGreaterThanOrEqual(-1);
    expect(x).toBeLessThanOrEqual(1001);
  }
});

it("paints nothing for a queue that begins after the view", () => {
  const { areas } = drawn(
    { ...timelineOf({}), lanes: [queueLane([[600, 2]], 2)] },
    { start_us: 0, end_us: 100 },
  );
  expect(areas).toEqual([]);
});

it("marks the edges of the current place", () => {
  const boxes = timelineOf({ "GPU 0 stream 7": [[200, 100, "k"]] });
  const { rectangles } = drawn(boxes, undefined, { start_us: 200, end_us: 300 });
  const edges = rectangles.filter(({ w, y, h }) => w === 1 && y === HEAD_PX && h === 400).map(({ x }) => x);
  expect(edges).toEqual(expect.arrayContaining([199.5, 299.5]));
});
