import { describe, expect, it } from "vitest";
import { sliceOf } from "../../canvas/slice";
import { timelineOf } from "../../canvas/timeline.testdata";
import type { EventDetails, TimelineEvent } from "../../wire/report";
import { selectedOf, spotsOf } from "./selected";

const slice = sliceOf(timelineOf({ "GPU 0 stream 7": [[0, 10, "gemm"]], main: [[0, 10, "aten::mm"]] }));
const [stream = "", main = ""] = slice.lanes.keys();
const event = (lane: number, start_us: number): TimelineEvent => ({
  ...{ number: 1, name: "", kind: 1, lane, depth: 2, start_us, duration_us: 10 },
});
const onMain = { lane: main, depth: 2, start_us: 5, end_us: 15 };

describe("the selected event", () => {
  it("is marked in its lane, with arrows in the direction of time", () => {
    const kernel = { lane: stream, depth: 2, start_us: 100, end_us: 110 };
    const links = [
      { kind: "launch", leads_here: false, event: event(0, 100) },
      { kind: "backward", leads_here: true, event: event(1, 0) },
      { kind: "release", leads_here: false, event: undefined },
    ];
    const details = { event: event(1, 5), links } as EventDetails;
    expect(selectedOf(details, slice)).toEqual({
      event: onMain,
      arrows: [
        { kind: "launch", from: onMain, to: kernel },
        { kind: "backward", from: { ...onMain, start_us: 0, end_us: 10 }, to: onMain },
      ],
    });
  });

  it("is nowhere until it and the lanes are loaded", () => {
    const details = { event: event(1, 5), links: [] } as unknown as EventDetails;
    for (const found of [selectedOf(undefined, slice), selectedOf(details, null)])
      expect(found).toEqual({ event: null, arrows: [] });
  });
});

it("matches are marked in their lanes", () => {
  expect(spotsOf([event(1, 5)], slice)).toEqual([onMain]);
  expect(spotsOf([event(1, 5)], null)).toEqual([]);
});
