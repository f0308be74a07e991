// The layout of the lanes, in pixels from the top of the first.

import { plural } from "../base/format";
import type { Slice, SliceLane } from "./slice";

/** Of a lane, or of the row that expands the other queues of a GPU. */
export type RowKind = SliceLane["kind"] | "queues";

export interface Row {
  readonly key: string;
  readonly kind: RowKind;
  readonly title: string;
  readonly device: number;
  /** Of a counter's values. */
  readonly unit: string;
  readonly top: number;
  readonly height: number;
  /** Height with the room below it: its label is as high. */
  readonly space: number;
  /** Height of one nesting depth. */
  readonly step: number;
  readonly depths: number;
  readonly folded: boolean;
  /** Number of outermost frames that span the whole trace. They are hidden unless the user asks for them. */
  readonly outer: number;
  /** The first depth to show. */
  readonly first: number;
  /** It stays at the top while the others scroll. */
  readonly pinned: boolean;
}

export interface Rows {
  readonly rows: readonly Row[];
  readonly height: number;
  /** Height of the pinned rows, which come first. */
  readonly pinned: number;
  /** Titles of hidden lanes. */
  readonly hidden: readonly string[];
}

/** Distance of a row from the top of the lanes, as they are scrolled. */
export function topOf(row: Row, scroll: number): number {
  return row.pinned ? row.top : row.top - scroll;
}

/** Keys of the lanes that the user folded or expanded. */
export interface LaneChoices {
  readonly folded: ReadonlySet<string>;
  readonly withOuter: ReadonlySet<string>;
  /** Keys of rows of kind "queues", to show all queues of their GPU. */
  readonly withQueues: ReadonlySet<string>;
  readonly pinned: ReadonlySet<string>;
  readonly hidden: ReadonlySet<string>;
}

export const NO_CHOICES: LaneChoices = {
  folded: new Set(),
  withOuter: new Set(),
  withQueues: new Set(),
  pinned: new Set(),
  hidden: new Set(),
};

const THREAD_DEPTH_PX = 15;

const HEIGHTS: Readonly<Record<RowKind, number>> = {
  gaps: 22,
  stream: 18,
  queue: 22,
  counter: 26,
  memory: 34,
  thread: THREAD_DEPTH_PX,
  queues: THREAD_DEPTH_PX,
};

/** Pinned lanes beyond this height scroll with the others. */
const MOST_PINNED_PX = 260;

/** Show this many queues per GPU, the deepest ones. More would push the host threads out of sight. */
const QUEUES_SHOWN = 2;
const SPACE_PX = 6;

/** A finger needs this much for a label, and for the button to show the outer frames below it. */
const LABEL_PX = 24;

/** An outer frame is alone at its depth and lasts for at least this share of the trace. */
const OUTER_SHARE = 0.8;

/** The depth of each lane over all slices so far, so that lanes do not shrink while the user zooms. */
export type Depths = ReadonlyMap<string, number>;

export function deepest(known: Depths, slice: Slice): Depths {
  const grown = [...slice.lanes.values()].filter((lane) => lane.depths.length > (known.get(lane.key) ?? 0));
  if (grown.length === 0) return known;
  return new Map([...known, ...grown.map((lane) => [lane.key, lane.depths.length] as const)]);
}

/** Lay out the lanes. `whole` is a slice of the whole trace, so that the layout does not depend on the view. */
export function rowsOf(whole: Slice, depths: Depths, choices: LaneChoices): Rows {
  const rows: Row[] = [];
  const further = furtherQueues(whole);
  let top = 0;
  let pinned = 0;
  const push = (row: Omit<Row, "top" | "pinned" | "space">) => {
    const fits = choices.pinned.has(row.key) && pinned + row.height <= MOST_PINNED_PX;
    const space = spaceOf(row);
    rows.push({ ...row, top, pinned: fits, space });
    top += space;
    if (fits) pinned = top;
  };
  const all = [...whole.lanes.values()];
  const hidden = all.filter(({ key }) => choices.hidden.has(key));
  const first = all.filter(({ key }) => choices.pinned.has(key));
  const ordered = [...first, ...all.filter((lane) => !first.includes(lane))];
  for (const lane of ordered.filter((one) => !hidden.includes(one))) {
    const { key, kind, title, device, unit } = lane;
    const others = further.get(device);
    const group = `queues/${device}`;
    const withQueues = choices.withQueues.has(group);
    const folded = choices.folded.has(key);
    const deep = Math.max(1, depths.get(key) ?? lane.depths.length);
    const outer = kind === "thread" ? outerFrames(lane, whole.end_us - whole.start_us) : 0;
    const from = choices.withOuter.has(key) ? 0 : outer;
    const step = HEIGHTS[kind];
    const height = (folded ? 1 : deep - from) * step;
    if (withQueues || choices.pinned.has(key) || !others?.lanes.has(lane)) {
      push({ key, kind, title, device, unit, height, step, depths: deep, folded, outer, first: from });
    }
    if (others?.after !== lane) continue;
    const more = plural(others.lanes.size, "more queue");
    const plain = { height: HEIGHTS.queues, step: HEIGHTS.queues, depths: 1, outer: 0, first: 0 };
    push({ key: group, kind: "queues", title: more, device, unit: "", folded: !withQueues, ...plain });
  }
  return { rows, height: top, pinned, hidden: hidden.map(({ title }) => title) };
}

function spaceOf({ height, outer, folded }: Pick<Row, "height" | "outer" | "folded">): number {
  return Math.max(height + SPACE_PX, (outer > 0 && !folded ? 2 : 1) * LABEL_PX);
}

interface FurtherQueues {
  readonly lanes: ReadonlySet<SliceLane>;
  /** The last queue of the GPU. The row to expand the others comes after it. */
  readonly after: SliceLane | undefined;
}

/** Return the queues to hide, by GPU. GPUs with few queues are left out. */
function furtherQueues({ lanes }: Slice): ReadonlyMap<number, FurtherQueues> {
  const found = new Map<number, SliceLane[]>();
  for (const lane of lanes.values()) {
    if (lane.kind === "queue") found.set(lane.device, [...(found.get(lane.device) ?? []), lane]);
  }
  return new Map(
    [...found]
      .filter(([, queues]) => queues.length > QUEUES_SHOWN)
      .map(([device, queues]) => {
        const deepestFirst = [...queues].sort((a, b) => (b.queue?.most ?? 0) - (a.queue?.most ?? 0));
        return [device, { lanes: new Set(deepestFirst.slice(QUEUES_SHOWN)), after: queues.at(-1) }];
      }),
  );
}

function outerFrames(lane: SliceLane, whole_us: number): number {
  const spanning = lane.depths.findIndex((boxes) => {
    const length = (boxes.end_us[0] ?? 0) - (boxes.start_us[0] ?? 0);
    return boxes.start_us.length !== 1 || length < OUTER_SHARE * whole_us;
  });
  // Keep the innermost one as context for the frames inside it.
  return Math.max(0, (spanning === -1 ? lane.depths.length : spanning) - 1);
}
