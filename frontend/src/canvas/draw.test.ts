import { expect, it } from "vitest";
import { draw, HEAD_PX } from "./draw";
import { deepest, NO_CHOICES, rowsOf } from "./rows";
import { sliceOf } from "./slice";
import { timelineOf } from "./timeline.testdata";

/** Records what is painted; a name is 6 px a character. */
function recorder() {
  const rectangles: { x: number; y: number; w: number; h: number; alpha: number }[] = [];
  const texts: string[] = [];
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
    beginPath: () => undefined,
    rect: () => undefined,
    clip: () => undefined,
    strokeRect: () => undefined,
  };
  return { context: context as unknown as CanvasRenderingContext2D, rectangles, texts };
}

function painted(boxes: Parameters<typeof timelineOf>[0]) {
  const slice = sliceOf(timelineOf(boxes));
  const record = recorder();
  const rows = rowsOf(slice, deepest(new Map(), slice), NO_CHOICES);
  draw(record.context, {
    width: 1000,
    height: 400,
    view: { start_us: 0, end_us: 1000 },
    scroll: 0,
    scheme: "light",
    slice,
    rows,
    highlight: [],
    gap: null,
    selection: null,
    hover: null,
  });
  const lane = record.rectangles.filter(({ y, h }) => y === HEAD_PX && h === (rows.rows[0]?.step ?? 0) - 1);
  return { lane, texts: record.texts };
}

it("paints thousands of tiny neighbours as few rectangles, as faint as they fill their place", () => {
  const tiny = Array.from({ length: 4000 }, (_, n) => [n / 4, 0.1, "k"] as const);
  const { lane } = painted({ "GPU 0 stream 7": tiny });
  expect(lane.length).toBeLessThan(10);
  expect(lane[0]?.alpha).toBeCloseTo(0.4, 1);
});

it("cuts names to the room that there is", () => {
  const { texts } = painted({ "GPU 0 stream 7": [[0, 100, "k".repeat(5000)]] });
  const shown = texts.find((text) => text.startsWith("k")) ?? "";
  expect(shown).toMatch(/^k+…$/);
  expect(shown.length * 6).toBeLessThan(100);
});

it("paints what begins before the view and ends after it inside the view", () => {
  const { lane } = painted({ "GPU 0 stream 7": [[-1e9, 3e9, "k"]] });
  expect(lane).toHaveLength(1);
  expect(lane[0]?.x).toBeGreaterThanOrEqual(-2);
  expect((lane[0]?.x ?? 0) + (lane[0]?.w ?? 0)).toBeLessThanOrEqual(1002);
});
