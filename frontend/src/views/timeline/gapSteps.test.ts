import { describe, expect, it } from "vitest";
import { sliceOf } from "../../canvas/slice";
import { timelineOf } from "../../canvas/timeline.testdata";
import type { Device, GapChain } from "../../wire/report";
import { gapSteps, longestGap } from "./gapSteps";

const devices = [
  { id: 0, gaps: 12 },
  { id: 1, gaps: 30 },
] as Device[];
const longest = { device: 1, gap: 4, start_us: 100, end_us: 900 };
const place = (gap: number) => ({ gap, start_us: 10 * gap, end_us: 10 * gap + 5 });
const chain = { state: "ready", rank: 3, gaps: 12, longer: place(2), shorter: place(8) } as GapChain;

describe("the longest gap", () => {
  const lanes = (from_us: number, to_us: number) =>
    longestGap(
      sliceOf(
        timelineOf({
          "GPU 0 idle": [
            [0, 400, "before", { gap: 1 }],
            [500, 20, "short", { gap: 2 }],
            [600, 100, "long", { gap: 3 }],
            [750, 250, "after", { gap: 4 }],
          ],
          "GPU 0 stream 7": [
            [from_us, 10, "first"],
            [to_us - 10, 10, "last"],
          ],
        }),
      ),
    );

  it("is between GPU work, as the report counts them", () => {
    expect(lanes(400, 750)).toMatchObject({ device: 0, gap: 3, start_us: 600, end_us: 700 });
  });

  it("is none if the GPU never stops", () => {
    expect(lanes(530, 590)).toBeUndefined();
  });
});

describe("steps through gaps", () => {
  it("begin with the longest, on its device", () => {
    const steps = gapSteps(devices, longest, null, undefined);
    expect(steps).toEqual({ total: 30, rank: 0, longer: null, shorter: longest });
  });

  it("go on where the server says, on the device of the open gap", () => {
    const { rank, total, longer, shorter } = gapSteps(devices, longest, { device: 0, gap: 5 }, chain);
    expect([rank, total]).toEqual([3, 12]);
    expect(longer).toEqual({ device: 0, ...place(2) });
    expect(shorter).toEqual({ device: 0, ...place(8) });
  });

  it("end at the longest and the shortest", () => {
    const ends = { ...chain, longer: undefined, shorter: undefined };
    const { longer, shorter } = gapSteps(devices, longest, { device: 0, gap: 5 }, ends);
    expect([longer, shorter]).toEqual([null, null]);
  });

  it("wait for the answer about the open gap, and need one that did not fail", () => {
    for (const answer of [undefined, { ...chain, state: "failed" as const }]) {
      const steps = gapSteps(devices, longest, { device: 0, gap: 5 }, answer);
      expect(steps).toEqual({ total: 12, rank: 0, longer: null, shorter: null });
    }
  });

  it("count the gaps of the first GPU if none is known", () => {
    const [, second] = devices;
    const steps = gapSteps(second ? [second] : [], undefined, null, undefined);
    expect(steps).toMatchObject({ total: 30, shorter: null });
    expect(gapSteps([], undefined, null, undefined)).toMatchObject({ total: 0, shorter: null });
  });
});
