import { bytes } from "../../base/format";
import type { Scale } from "../../state/memoryCurve";
import { usePage } from "../../state/store";
import type { DeviceMemory } from "../../wire/report";
import { chartColours } from "./colours";

/** What the lines and marks of the chart are. */
export function Legend({ memory, scale }: { memory: DeviceMemory; scale: Scale }) {
  const colours = chartColours(usePage((page) => page.scheme));
  const floors = memory.floors.length > 0;
  const shown: readonly (readonly [boolean, string, string, string])[] = [
    [true, "line", colours.allocated, "Allocated"],
    [memory.peak_reserved_bytes > 0 && scale.reserved, "dashes", colours.reserved, "Reserved"],
    [
      floors,
      "point",
      colours.floor,
      `Floor of a ${memory.trend?.unit === "second" ? "window of time" : "step"}`,
    ],
    [floors && memory.floors.some(({ excused }) => excused), "hollow", colours.floor, "of a warm-up"],
    [memory.trend !== undefined, "dashes", colours.floor, "Trend"],
  ];
  return (
    <ul className="gd-memory-legend" aria-label="What the chart shows">
      {shown
        .filter(([there]) => there)
        .map(([, sign, colour, name]) => (
          <li key={name}>
            <span data-sign={sign} style={{ color: colour }} aria-hidden="true" />
            {name}
          </li>
        ))}
      {scale.min > 0 && <li>The axis does not begin at 0</li>}
      {!scale.reserved && <li>↑ Reserved, above the scale</li>}
      {memory.capacity_bytes > 0 && !scale.capacity && (
        <li>↑ Capacity {bytes(memory.capacity_bytes)}, above the scale</li>
      )}
    </ul>
  );
}
