import { bytes } from "../../base/format";
import { MEMORY_LINES } from "../../base/vocabulary";
import type { Scale } from "../../state/memoryCurve";
import { usePage } from "../../state/store";
import type { DeviceMemory } from "../../wire/report";

/** The legend of the chart. */
export function Legend({ memory, scale }: { memory: DeviceMemory; scale: Scale }) {
  const scheme = usePage((page) => page.scheme);
  const floors = memory.floors.length > 0;
  const shown: readonly (readonly [boolean, string, keyof typeof MEMORY_LINES, string])[] = [
    [true, "line", "allocated", MEMORY_LINES.allocated.word],
    [memory.peak_reserved_bytes > 0 && scale.reserved, "dashes", "reserved", MEMORY_LINES.reserved.word],
    [floors, "point", "floor", `Floor of ${floorOf(memory)}`],
    [floors && memory.floors.some(({ excused }) => excused), "hollow", "floor", "Warm-up"],
    [memory.trend !== undefined, "dashes", "floor", "Trend"],
  ];
  return (
    <ul className="gd-memory-legend" aria-label="Legend of the memory chart">
      {shown
        .filter(([there]) => there)
        .map(([, mark, line, name]) => (
          <li key={name} title={MEMORY_LINES[line].explanation}>
            <span data-mark={mark} style={{ color: MEMORY_LINES[line].color[scheme] }} aria-hidden="true" />
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

/** "a step", "an inferred step", "a window of time". */
function floorOf({ trend }: DeviceMemory): string {
  if (trend?.unit === "second") return "a window of time";
  const word = trend?.word ?? "step";
  return `${/^[aeiou]/.test(word) ? "an" : "a"} ${word}`;
}
