import { bytes, count, percent, plural, time } from "../../base/format";
import type { DeviceMemory } from "../../wire/report";

/** Memory that the allocator reserves without using it, and its calls to the driver. */
export function Reserved({ memory }: { memory: DeviceMemory }) {
  const { reserve, peak_reserved_bytes: most } = memory;
  if (!reserve || (most <= 0 && reserve.out_of_memory === 0)) return null;
  const calls = (all: number, steady: number) =>
    `${plural(all, "time")}${steady > 0 ? `, ${count(steady)} after warm-up` : ""}`;
  const rows: readonly (readonly [boolean, string, string])[] = [
    [true, "At the peak", share(reserve.unused_at_peak_bytes, memory.reserved_at_peak_bytes)],
    [reserve.most_unused_bytes > 0, "Maximum", bytes(reserve.most_unused_bytes)],
    [reserve.segments > 0, "Segments", count(reserve.segments)],
    [
      reserve.free_in_used_segments_bytes > 0,
      "Free in segments in use",
      bytes(reserve.free_in_used_segments_bytes),
    ],
    [reserve.largest_free_bytes > 0, "Largest free block", bytes(reserve.largest_free_bytes)],
    [reserve.growths > 0, "Requested from the driver", calls(reserve.growths, reserve.steady_growths)],
    [reserve.shrinks > 0, "Returned to the driver", calls(reserve.shrinks, reserve.steady_shrinks)],
    [reserve.driver_us > 0, "GPU idle during these calls", time(reserve.driver_us)],
    [reserve.retries > 0, "Allocation retries", count(reserve.retries)],
    [reserve.out_of_memory > 0, "Out of memory", plural(reserve.out_of_memory, "time")],
  ];
  return (
    <section className="gd-memory-reserved" aria-label="Reserved but unused">
      <h3>Reserved but unused</h3>
      <dl>
        {rows
          .filter(([there]) => there)
          .map(([, name, value]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ))}
      </dl>
    </section>
  );
}

function share(unused: number, reserved: number): string {
  return reserved > 0 ? `${bytes(unused)} (${percent(unused, reserved)} of reserved memory)` : bytes(unused);
}
