// A small timeline in the server's format, for tests.

import type { Lane, Timeline } from "../wire/report";

type Box = readonly [
  start: number,
  duration: number,
  name: string,
  more?: Partial<Record<"depth" | "count" | "gap", number>>,
];

export function timelineOf(lanes: Record<string, readonly Box[]>, more: Partial<Timeline> = {}): Timeline {
  const names = [...new Set(Object.values(lanes).flatMap((boxes) => boxes.map(([, , name]) => name)))];
  return {
    start_us: 0,
    end_us: 1000,
    state: "ready",
    error: undefined,
    progress: 1,
    steps: [],
    names,
    lanes: Object.entries(lanes).map(([title, boxes]) => laneOf(title, boxes, names)),
    ...more,
  };
}

/** A queue lane. Each step gives the time and the number of queued launches, or their minimum and maximum. */
export function queueLane(
  steps: readonly (readonly [us: number, low: number, high?: number])[],
  queue_most: number,
  title = "GPU 0 stream 7 queue",
): Lane {
  const lane = laneOf(title, [], []);
  const queue = {
    time_us: steps.map(([us]) => us),
    low: steps.map(([, low]) => low),
    high: steps.map(([, low, high]) => high ?? low),
  };
  return { ...lane, kind: "queue", queue, queue_most };
}

function laneOf(title: string, boxes: readonly Box[], names: readonly string[]): Lane {
  const kind = title.includes("idle") ? "gaps" : title.includes("stream") ? "stream" : "thread";
  return {
    kind,
    title,
    device: kind === "thread" ? -1 : 0,
    box_start_us: boxes.map(([start]) => start),
    box_duration_us: boxes.map(([, duration]) => duration),
    box_name: boxes.map(([, , name]) => names.indexOf(name)),
    box_depth: boxes.map(([, , , more]) => more?.depth ?? 0),
    box_count: boxes.map(([, , , more]) => more?.count ?? 1),
    box_kind: boxes.map(() => (kind === "gaps" ? 0 : 1)),
    box_gap: kind === "gaps" ? boxes.map(([, , , more]) => more?.gap ?? 0) : [],
    queue: undefined,
    queue_most: 0,
    unit: "",
  };
}
