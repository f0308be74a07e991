import { describe, expect, it } from "vitest";
import { hit, rowAt } from "./hit";
import { deepest, NO_CHOICES, rowsOf } from "./rows";
import { firstEndingAfter, gapsOf, kindsOf, sliceOf } from "./slice";
import { queueLane, timelineOf } from "./timeline.testdata";

const timeline = timelineOf({
  "GPU 0 idle": [
    [100, 50, "input", { gap: 7 }],
    [150, 100, "python", { gap: 7 }],
    [400, 20, "launch", { gap: 8 }],
    [600, 5, "latency", { gap: 9, count: 3 }],
  ],
  "GPU 0 stream 7": [[0, 100, "gemm"]],
  main: [
    [0, 1000, "outermost"],
    [0, 1000, "outer", { depth: 1 }],
    [0, 990, "main.py(3): train", { depth: 2 }],
    [10, 20, "aten::mm", { depth: 3 }],
    [31, 1, "aten::add", { depth: 3 }],
  ],
});
const slice = sliceOf(timeline);
const rows = rowsOf(slice, deepest(new Map(), slice), NO_CHOICES);
const view = { start_us: 0, end_us: 1000 };
const top = (title: string) => rows.rows.find((row) => row.title === title)?.top ?? Number.NaN;

/** One pixel is one µs. */
const at = (x: number, y: number) => hit(slice, rows, view, 1000, x, y);

describe("hit", () => {
  it("finds the box under the pointer, by lane and depth", () => {
    expect(at(120, top("GPU 0 idle") + 3)).toMatchObject({
      name: "input",
      start_us: 100,
      end_us: 150,
      gap: 7,
    });
    expect(at(50, top("GPU 0 stream 7") + 3)).toMatchObject({ name: "gemm", gap: null });
    expect(at(15, top("main") + 20)).toMatchObject({ name: "aten::mm", depth: 3 });
  });

  it("tolerates a few pixels, and takes the nearer neighbor", () => {
    expect(at(31.8, top("main") + 20)?.name).toBe("aten::add");
    expect(at(33.5, top("main") + 20)?.name).toBe("aten::add");
    expect(at(200, top("main") + 20)).toBeNull();
  });

  it("finds nothing between and below the lanes", () => {
    expect(at(50, top("GPU 0 stream 7") - 2)).toBeNull();
    expect(rowAt(rows, rows.height + 100)).toBeNull();
  });

  it("returns no gap number for a merged box", () => {
    expect(at(602, 3)).toMatchObject({ count: 3, gap: null });
  });

  it("finds boxes far from the start of the slice", () => {
    const zoomed = { start_us: 400, end_us: 401 };
    expect(hit(slice, rows, zoomed, 1000, 500, 3)?.name).toBe("launch");
  });
});

describe("a queue", () => {
  const queued = sliceOf({
    ...timeline,
    lanes: [
      queueLane(
        [
          [100, 3],
          [200, 0, 9],
          [500, 0],
        ],
        12,
      ),
    ],
  });
  const laid = rowsOf(queued, deepest(new Map(), queued), NO_CHOICES);
  const over = (x: number) => hit(queued, laid, view, 1000, x, 5);

  it("has a lane of fixed height, and shows the depth under the pointer", () => {
    expect(laid.rows).toMatchObject([{ kind: "queue", height: 22, top: 0 }]);
    expect(over(150)).toMatchObject({ queued: [3, 3], start_us: 100, end_us: 200, gap: null });
    expect(over(350)).toMatchObject({ queued: [0, 9], start_us: 200, end_us: 500 });
    expect(over(700)).toMatchObject({ queued: [0, 0], end_us: 1000 });
  });

  it("has no depth before its first value", () => {
    expect(over(50)).toBeNull();
  });
});

it("lists the kinds of events in the lanes, but none for gaps", () => {
  const kinds = timeline.lanes.map((lane) => ({ ...lane, box_kind: lane.box_kind.map(() => 6) }));
  expect([...kindsOf(sliceOf({ ...timeline, lanes: kinds.slice(0, 1) }))]).toEqual([]);
  expect([...kindsOf(sliceOf({ ...timeline, lanes: kinds }))]).toEqual([6]);
});

describe("rows", () => {
  it("hide frames that span the whole trace, except the innermost", () => {
    const main = rows.rows.find((row) => row.title === "main");
    expect(main).toMatchObject({ outer: 2, first: 2, height: 30 });
    expect(at(500, top("main") + 3)?.name).toBe("main.py(3): train");
  });

  it("show those frames on demand, and fold a lane to one line", () => {
    const key = rows.rows.find((row) => row.title === "main")?.key ?? "";
    const depths = deepest(new Map(), slice);
    const height = (choices: Partial<typeof NO_CHOICES>) =>
      rowsOf(slice, depths, { ...NO_CHOICES, ...choices }).rows.find((row) => row.key === key)?.height;
    expect(height({ withOuter: new Set([key]) })).toBe(60);
    expect(height({ folded: new Set([key]) })).toBe(15);
  });

  it("hide all but the deepest queues of a GPU, and show them on demand", () => {
    const depths = { "7": 900, "25": 4, "27": 16, "84": 3 };
    const queues = Object.entries(depths).map(([stream, most]) =>
      queueLane([[0, 0]], most, `GPU 0 stream ${stream} queue`),
    );
    const many = sliceOf({ ...timeline, lanes: [...queues, ...timeline.lanes] });
    const titles = (choices: Partial<typeof NO_CHOICES>) =>
      rowsOf(many, new Map(), { ...NO_CHOICES, ...choices }).rows.map(({ title }) => title);
    const others = rows.rows.map(({ title }) => title);
    const [first, shallow, deep, last] = queues.map(({ title }) => title);
    expect(titles({})).toEqual([first, deep, "2 more queues", ...others]);
    expect(titles({ withQueues: new Set(["queues/0"]) })).toEqual([
      ...[first, shallow, deep, last],
      ...["2 more queues", ...others],
    ]);
    const two = sliceOf({ ...timeline, lanes: queues.slice(0, 2) });
    expect(rowsOf(two, new Map(), NO_CHOICES).rows.map(({ title }) => title)).toEqual([first, shallow]);
  });

  it("never shrink while the user zooms to a part with less nesting", () => {
    const known = deepest(new Map(), slice);
    const shallow = sliceOf(timelineOf({ main: [[0, 10, "outer"]] }));
    expect(deepest(known, shallow)).toBe(known);
  });

  it("keep lanes with the same title separate", () => {
    const twins = sliceOf({ ...timeline, lanes: [...timeline.lanes, ...timeline.lanes] });
    expect(twins.lanes.size).toBe(2 * slice.lanes.size);
  });
});

describe("gaps", () => {
  it("show one box while the cause stays the same", () => {
    const cut = sliceOf(
      timelineOf({
        "GPU 0 idle": [
          [0, 10, "input", { gap: 1 }],
          [10, 10, "input", { gap: 1 }],
          [20, 10, "python", { gap: 1 }],
          [30, 10, "python", { gap: 2 }],
        ],
      }),
    );
    const boxes = [...cut.lanes.values()][0]?.depths[0];
    expect(boxes && [...boxes.end_us]).toEqual([20, 30, 40]);
  });

  it("are joined from their segments, longest first, without merged ones", () => {
    expect(gapsOf(slice)).toEqual([
      { device: 0, gap: 7, start_us: 100, end_us: 250 },
      { device: 0, gap: 8, start_us: 400, end_us: 420 },
    ]);
  });
});

it("finds boxes by their end", () => {
  const boxes = [...slice.lanes.values()][0]?.depths[0];
  expect([0, 149, 150, 250, 604, 605].map((us) => boxes && firstEndingAfter(boxes, us))).toEqual([
    0, 0, 1, 2, 3, 4,
  ]);
});
