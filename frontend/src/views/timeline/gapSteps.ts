// Steps through the gaps of a device, longest first.

import type { Viewport } from "../../base/viewport";
import { gapsOf, type Gap, type Slice } from "../../canvas/slice";
import type { GapKey } from "../../state/store";
import type { Device, GapChain, GapPlace } from "../../wire/report";

export interface GapSteps {
  /** Number of gaps of the device, as the report counts them. */
  readonly total: number;
  /** Rank of the open gap by length, from 1; 0 if none is open, or if the report does not count it. */
  readonly rank: number;
  readonly longer: Gap | null;
  readonly shorter: Gap | null;
}

/** Return the longest gap between GPU work of its device. The report does not count those before and after all work. */
export function longestGap(slice: Slice): Gap | undefined {
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

/** Return the gaps next to the open one, whose answer is `chain` once it arrives; without one, the longest. */
export function gapSteps(
  devices: readonly Device[],
  longest: Gap | undefined,
  open: GapKey | null,
  chain: GapChain | undefined,
): GapSteps {
  const device = open?.device ?? longest?.device ?? devices[0]?.id ?? 0;
  const total = devices.find(({ id }) => id === device)?.gaps ?? 0;
  if (!open) return { total, rank: 0, longer: null, shorter: longest ?? null };
  const known = chain?.state === "ready" ? chain : undefined;
  const gapAt = (place: GapPlace | undefined) => (place ? { device, ...place } : null);
  return {
    total: known?.gaps ?? total,
    rank: known?.rank ?? 0,
    longer: gapAt(known?.longer),
    shorter: gapAt(known?.shorter),
  };
}
