import { expect, it } from "vitest";
import { plain } from "../base/format.testdata";
import type { DeviceMemory, FloorTrend, MemoryOwner, Place } from "../wire/report";
import {
  floorSentence,
  memoryLabel,
  peakSentence,
  peakTiles,
  onTile,
  sameSite,
  spanName,
  stepName,
  tileTitle,
} from "./memory";

const MIB = 2 ** 20;

function memory(some: Partial<DeviceMemory>): DeviceMemory {
  const all: Partial<DeviceMemory> = {
    device: 0,
    peak_allocated_bytes: 300 * MIB,
    reserved_at_peak_bytes: 0,
    capacity_bytes: 0,
    peak_us: 2500,
    peak_phase: "",
    peak_owners: [],
    peak_kinds: [],
    steps_until_full: 0,
    trend: undefined,
  };
  return { ...all, ...some } as DeviceMemory;
}

function trend(some: Partial<FloorTrend>): FloorTrend {
  const all: Partial<FloorTrend> = {
    state: "rising",
    bytes_per_step: 8 * MIB,
    low_bytes_per_step: 8 * MIB,
    high_bytes_per_step: 8 * MIB,
    steps: 6,
    unit: "step",
  };
  return { ...all, ...some } as FloorTrend;
}

it("describes the peak as far as the trace shows it", () => {
  expect(plain(peakSentence(memory({})))).toBe("Memory peaks 2.50 ms after the start: 300 MiB allocated.");
  const known = { reserved_at_peak_bytes: 512 * MIB, capacity_bytes: 1024 * MIB, peak_phase: "backward" };
  expect(plain(peakSentence(memory(known)))).toBe(
    "Memory peaks 2.50 ms after the start, in the backward pass: 300 MiB allocated, " +
      "512 MiB reserved (50.0% of the device's 1 GiB).",
  );
});

it("says how fast the floor rises, with a confidence interval, and when memory is full", () => {
  const found = memory({
    steps_until_full: 12.7,
    floor_slope_bytes_per_step: 8 * MIB,
    trend: trend({ bytes_per_step: 0, low_bytes_per_step: 7 * MIB, high_bytes_per_step: 9 * MIB }),
  });
  expect(plain(floorSentence(found))).toBe(
    "The floor rises by 8 MiB per step (95% confidence: 7 MiB to 9 MiB). At this rate, memory is full after 12 more steps.",
  );
});

it("shows no confidence interval for fewer than four floors", () => {
  const few = memory({ trend: trend({ steps: 3, low_bytes_per_step: 1, high_bytes_per_step: 9 * MIB }) });
  expect(plain(floorSentence(few))).toBe("The floor rises by 8 MiB per step.");
});

it.each(["level", "plateau", "unclear"])("never says that a %s floor rises", (state) => {
  const said = floorSentence(memory({ trend: trend({ state }), steps_until_full: 3 }));
  expect(said).not.toContain("rises");
  expect(said).not.toContain("full");
});

it("says how fast a floor falls, with the bounds of the interval swapped", () => {
  const falling = trend({
    state: "falling",
    bytes_per_step: -8 * MIB,
    low_bytes_per_step: -9 * MIB,
    high_bytes_per_step: -7 * MIB,
  });
  expect(plain(floorSentence(memory({ trend: falling })))).toBe(
    "The floor falls by 8 MiB per step (95% confidence: 7 MiB to 9 MiB).",
  );
});

it("names devices as recorded", () => {
  expect([memory({ device: 3 }), memory({ device: -1 })].map(memoryLabel)).toEqual(["GPU 3", "CPU"]);
});

it("makes tiles that add up to the peak, with one for owners that are not listed", () => {
  const owner = (kind: MemoryOwner["kind"], bytes: number): MemoryOwner => ({
    kind,
    operator: "aten::mm",
    module: "",
    place: undefined,
    bytes,
    count: 1,
    largest_bytes: bytes,
  });
  const kinds = peakTiles(
    memory({
      peak_kinds: [
        { kind: "activation", bytes: 70 },
        { kind: "parameter", bytes: 200 },
        { kind: "input", bytes: 0 },
        { kind: "before", bytes: 30 },
      ],
      peak_owners: [owner("activation", 40), owner("activation", 20), owner("parameter", 200)],
    }),
  );
  expect(kinds.map(({ kind, tiles }) => [kind, tiles.map((tile) => tile.bytes)])).toEqual([
    ["parameter", [200]],
    ["activation", [40, 20, 10]],
    ["before", [30]],
  ]);
  expect(kinds[1]?.tiles.map(tileTitle)).toEqual(["aten::mm", "aten::mm", "others"]);
});

it("matches an owner of the peak with its allocation site", () => {
  const place = { file: "train.py", line: 12, function: "log", operator: "aten::cat" } as Place;
  const cat = { operator: "aten::cat", place };
  expect(sameSite(cat, { operator: "aten::cat", place: { ...place, us: 5 } })).toBe(true);
  expect(sameSite(cat, { operator: "aten::cat", place: { ...place, line: 13 } })).toBe(false);
  expect(sameSite(cat, { operator: "aten::mm", place })).toBe(false);
});

it("names a range by its step, or by its start and end", () => {
  const steps = [{ name: "ProfilerStep#7", start_us: 1000, end_us: 3000 }];
  expect(spanName({ start_us: 1000, end_us: 3000 }, steps)).toBe("Step 7");
  expect(plain(spanName({ start_us: 1000, end_us: 2500 }, steps))).toBe("1.00 ms to 2.50 ms");
  expect(stepName("<b>epoch</b>")).toBe("<b>epoch</b>");
});

it("shortens what a tile says to file and line", () => {
  expect(onTile("aten::mm · /home/me/job/train.py:7 in keep")).toBe("aten::mm · train.py:7 in keep");
  expect(onTile("keep (job/train.py, defined at line 7)")).toBe("keep (train.py, defined at line 7)");
  expect(onTile("aten::mm in Linear_0")).toBe("aten::mm in Linear_0");
});
