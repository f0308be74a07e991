import { usePage } from "../../state/store";
import type { DeviceMemory } from "../../wire/report";
import { chartColours } from "./colours";

/** What the lines and marks of the chart are. */
export function Legend({ memory, reserved }: { memory: DeviceMemory; reserved: boolean }) {
  const colours = chartColours(usePage((page) => page.scheme));
  const floors = memory.floors.length > 0;
  const shown: readonly (readonly [boolean, string, string, string])[] = [
    [true, "line", colours.allocated, "Allocated"],
    [reserved, "dashes", colours.reserved, "Reserved by the allocator"],
    [floors, "point", colours.floor, "Floor: the least of a step"],
    [floors && memory.floors.some(({ excused }) => excused), "hollow", colours.floor, "Floor of a warm-up"],
    [memory.trend !== undefined, "dashes", colours.floor, "Trend of the floors, with its confidence"],
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
    </ul>
  );
}
