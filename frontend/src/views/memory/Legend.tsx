import { bytes } from "../../base/format";
import type { Scale } from "../../state/memoryCurve";
import { usePage } from "../../state/store";
import type { DeviceMemory } from "../../wire/report";
import { chartColors } from "./colors";

/** The legend of the chart. */
export function Legend({ memory, scale }: { memory: DeviceMemory; scale: Scale }) {
  const colors = chartColors(usePage((page) => page.scheme));
  const floors = memory.floors.length > 0;
  const shown: readonly (readonly [boolean, string, string, string])[] = [
    [true, "line", colors.allocated, "Allocated"],
    [memory.peak_reserved_bytes > 0 && scale.reserved, "dashes", colors.reserved, "Reserved"],
    [
      floors,
      "point",
      colors.floor,
      `Floor of a ${memory.trend?.unit === "second" ? "window of time" : "step"}`,
    ],
    [floors && memory.floors.some(({ excused }) => excused), "hollow", colors.floor, "Warm-up"],
    [memory.trend !== undefined, "dashes", colors.floor, "Trend"],
  ];
  return (
    <ul className="gd-memory-legend" aria-label="Legend of the memory chart">
      {shown
        .filter(([there]) => there)
        .map(([, mark, color, name]) => (
          <li key={name}>
            <span data-mark={mark} style={{ color }} aria-hidden="true" />
            {name}
          </li>
        ))}
      {scale.min > 0 && <li>The axis does not start at 0</li>}
      {!scale.reserved && <li>↑ Reserved: off the scale</li>}
      {memory.capacity_bytes > 0 && !scale.capacity && (
        <li>↑ Capacity {bytes(memory.capacity_bytes)}: off the scale</li>
      )}
    </ul>
  );
}
