import { cleanup, screen } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { cause } from "../../base/causes";
import { plain } from "../../base/format.testdata";
import { hit, type Hit } from "../../canvas/hit";
import { deepest, NO_CHOICES, rowsOf } from "../../canvas/rows";
import { sliceOf, withMemory } from "../../canvas/slice";
import { queueLane, timelineOf } from "../../canvas/timeline.testdata";
import type { Timeline } from "../../wire/report";
import { renderPart } from "../page.testdata";
import { HoverCard } from "./HoverCard";

const view = { start_us: 0, end_us: 1000 };

/** What is under the pointer in the first lane, one pixel per µs. */
function first(timeline: Timeline, x: number): Hit {
  const slice = sliceOf(timeline);
  const rows = rowsOf(slice, deepest(new Map(), slice), NO_CHOICES);
  const found = hit(slice, rows, view, 1000, x, 3);
  if (!found) throw new Error("nothing is there");
  return found;
}

function card(found: Hit, x = 0, y = 0): HTMLElement {
  cleanup();
  renderPart(<HoverCard hover={{ hit: found, x, y }} width={1000} height={400} />);
  return screen.getByRole("tooltip");
}

const text = (found: Hit) => plain(card(found).textContent);

describe("the card", () => {
  const gaps = timelineOf({
    "GPU 0 idle": [
      [100, 50, "input", { gap: 7 }],
      [600, 40, "input", { gap: 9, count: 3 }],
    ],
  });

  it("names and explains the cause of a gap, and what a click does", () => {
    const shown = text(first(gaps, 120));
    expect(shown).toContain(cause("input").word);
    expect(shown).toContain("50 µs");
    expect(shown).toContain("GPU 0 idle");
    expect(shown).toContain("Click to see what caused this gap.");
  });

  it("says that a box is several gaps, whose cause a click does not explain", () => {
    const shown = text(first(gaps, 620));
    expect(shown).toContain("3 short gaps, merged");
    expect(shown).toContain("Click to zoom in.");
    expect(shown).not.toContain("what caused");
  });

  it("names an event and its kind", () => {
    const shown = text(first(timelineOf({ "GPU 0 stream 7": [[0, 20, "gemm"]] }), 10));
    expect(shown).toContain("gemm");
    expect(shown).toContain("20 µs");
    expect(shown).not.toContain("merged");
  });

  it("reads a queue: its depth, or from least to most where it changes faster than can be seen", () => {
    const lane = queueLane(
      [
        [0, 1],
        [200, 0, 9],
      ],
      9,
    );
    const queue = { ...timelineOf({}), lanes: [lane] };
    expect(text(first(queue, 100))).toContain("1 launch queued");
    expect(text(first(queue, 300))).toContain("0 to 9 launches queued");
  });

  it("reads the memory curve in bytes", () => {
    const column = (...values: number[]) => Float64Array.from(values);
    const curve = { time_us: column(0), low: column(2 ** 30), high: column(2 ** 31), most: 2 ** 31 };
    const slice = withMemory(sliceOf(timelineOf({})), new Map([[0, curve]]));
    const found = hit(slice, rowsOf(slice, new Map(), NO_CHOICES), view, 1000, 500, 3);
    expect(found && text(found)).toContain("1 GiB to 2 GiB allocated");
  });

  it("is right of the pointer and below it, near the edges of the lanes left of it and above it", () => {
    const found = first(gaps, 120);
    const near = card(found, 100, 10).style;
    expect(Number.parseFloat(near.left)).toBeGreaterThan(100);
    expect(Number.parseFloat(near.top)).toBeGreaterThan(10);
    const far = card(found, 950, 380).style;
    expect(Number.parseFloat(far.left)).toBeLessThan(950 - 300);
    expect(far.top).toBe("");
    // From the lower edge, which is 20 px below the pointer.
    expect(Number.parseFloat(far.bottom)).toBeGreaterThan(20);
  });
});
