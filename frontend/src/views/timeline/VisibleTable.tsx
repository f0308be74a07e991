import { useDebouncedValue } from "@mantine/hooks";
import { useMemo } from "react";
import { exactTime, time } from "../../base/format";
import type { Viewport } from "../../base/viewport";
import type { Slice } from "../../canvas/slice";
import { longestIn } from "./longest";

const REST_MS = 400;

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
