import { aired, type Viewport } from "../../base/viewport";
import { gapsOf, type Gap, type Slice } from "../../canvas/slice";
import { useGap } from "../../state/queries";
import { usePage, type GapKey } from "../../state/store";
import { useMemo } from "react";
import type { Device, GapPlace, TraceEntry } from "../../wire/report";

export interface GapSteps {
  /** Number of gaps of the device, as the report counts them. */
  readonly total: number;
  /** Rank of the open gap by length, from 1; 0 if none is open, or if the report does not count it. */
  readonly rank: number;
  readonly longer: (() => void) | null;
  readonly shorter: (() => void) | null;
}

function open(device: number, place: GapPlace | undefined): (() => void) | null {
  if (!place) return null;
  return () => {
    const { openGap, setView } = usePage.getState();
    openGap({ device, gap: place.gap });
    setView(aired(place));
  };
}

/** The longest gap between GPU work of its device. The report does not count those before and after all work. */
function longestOf(slice: Slice): Gap | undefined {
  const spans = new Map<number, Viewport>();
  for (const { kind, device, depths } of slice.lanes.values()) {
    if (kind !== "stream") continue;
    for (const { start_us, end_us } of depths) {
      const known = spans.get(device);
      spans.set(device, {
        start_us: Math.min(known?.start_us ?? Infinity, start_us[0] ?? Infinity),
        end_us: Math.max(known?.end_us ?? -Infinity, end_us.at(-1) ?? -Infinity),
      });
    }
  }
  return gapsOf(slice).find(({ device, start_us, end_us }) => {
    const work = spans.get(device);
    return work && start_us >= work.start_us && end_us <= work.end_us;
  });
}

/** Steps through the gaps of a device, longest first. The server ranks them: lanes merge short ones. */
export function useGapSteps(
  entry: TraceEntry,
  devices: readonly Device[],
  overview: Slice | null,
  gap: GapKey | null,
): GapSteps {
  const { data } = useGap(entry, gap);
  const longest = useMemo(() => (overview ? longestOf(overview) : undefined), [overview]);
  const device = gap?.device ?? longest?.device ?? devices[0]?.id ?? 0;
  const total = devices.find(({ id }) => id === device)?.gaps ?? 0;
  if (!gap) return { total, rank: 0, longer: null, shorter: open(device, longest) };
  const known = data?.state === "ready" ? data : undefined;
  return {
    total: known?.gaps ?? total,
    rank: known?.rank ?? 0,
    longer: open(device, known?.longer),
    shorter: open(device, known?.shorter),
  };
}
