import { useDebouncedValue } from "@mantine/hooks";
import { useMemo } from "react";
import { exactTime, time } from "../../base/format";
import { functionFirst } from "../../base/names";
import type { Viewport } from "../../base/viewport";
import { firstEndingAfter, type Boxes, type Slice } from "../../canvas/slice";

/** The longest ones of what is visible. */
const MOST = 40;
const REST_MS = 400;

interface Item {
  readonly lane: string;
  readonly name: string;
  readonly count: number;
  readonly start_us: number;
  readonly us: number;
}

/** What is visible on the lanes, for screen readers. */
export function VisibleTable({ slice, view }: { slice: Slice | null; view: Viewport }) {
  const [rested] = useDebouncedValue(view, REST_MS);
  const items = useMemo(() => (slice ? longestIn(slice, rested) : []), [slice, rested]);
  return (
    <div className="gd-unseen">
      <table>
        <caption>
          The longest events from {exactTime(rested.start_us)} to {exactTime(rested.end_us)}
        </caption>
        <thead>
          <tr>
            <th scope="col">Lane</th>
            <th scope="col">Event</th>
            <th scope="col">Start</th>
            <th scope="col">Duration</th>
          </tr>
        </thead>
        <tbody>
          {items.map((item, at) => (
            <tr key={at}>
              <td>{item.lane}</td>
              <td>{item.count > 1 ? `${item.count} × ${item.name}` : item.name}</td>
              <td>{exactTime(item.start_us)}</td>
              <td>{time(item.us)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function longestIn(slice: Slice, view: Viewport): readonly Item[] {
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
