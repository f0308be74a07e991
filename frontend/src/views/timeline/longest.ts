// The longest events in view.

import { functionFirst } from "../../base/names";
import type { Viewport } from "../../base/viewport";
import { firstEndingAfter, type Boxes, type Slice } from "../../canvas/slice";

/** More would take too long to listen to. */
const MOST = 40;

export interface Item {
  readonly lane: string;
  readonly name: string;
  readonly count: number;
  readonly start_us: number;
  /** As far as it is in view. */
  readonly us: number;
}

/** Return the longest events in view, in the order of time. */
export function longestIn(slice: Slice, view: Viewport): readonly Item[] {
  let found: Item[] = [];
  for (const { title, depths } of slice.lanes.values()) {
    for (const boxes of depths) {
      for (const at of visible(boxes, view)) {
        if (found.length >= 4 * MOST) found = longest(found);
        found.push(item(slice, title, boxes, at, view));
      }
    }
  }
  return longest(found).sort((a, b) => a.start_us - b.start_us);
}

function* visible(boxes: Boxes, { start_us, end_us }: Viewport): Generator<number> {
  for (let at = firstEndingAfter(boxes, start_us); at < boxes.start_us.length; at += 1) {
    if ((boxes.start_us[at] ?? 0) >= end_us) break;
    yield at;
  }
}

function item(slice: Slice, lane: string, boxes: Boxes, at: number, view: Viewport): Item {
  const start_us = boxes.start_us[at] ?? 0;
  const us = Math.min(boxes.end_us[at] ?? 0, view.end_us) - Math.max(start_us, view.start_us);
  const name = functionFirst(slice.names[boxes.name[at] ?? 0] ?? "");
  return { lane, name, count: boxes.count[at] ?? 1, start_us, us };
}

function longest(items: Item[]): Item[] {
  return items.sort((a, b) => b.us - a.us).slice(0, MOST);
}
