// Filtering and sorting of the launch table.

import type { LaunchHotspot } from "../wire/report";

/** The numeric columns. Launches can be sorted by each. */
export type Figure =
  | "launches"
  | "host_us"
  | "full_queue_us"
  | "dispatch_us"
  | "python_us"
  | "kernel_us"
  | "empty_queue_share"
  | "idle_us"
  | "idle_per_step_us";

/** Columns to hide if they are all zero: no launch waited for a full queue, or the trace has no steps. */
const OPTIONAL: readonly Figure[] = ["full_queue_us", "idle_per_step_us"];

export function isShown(figure: Figure, spots: readonly LaunchHotspot[]): boolean {
  return !OPTIONAL.includes(figure) || spots.some((spot) => spot[figure] > 0);
}

export interface Order {
  readonly by: Figure;
  readonly descending: boolean;
}

/** The report's order: by the idle time that the launches caused. */
export const FIRST_ORDER: Order = { by: "idle_us", descending: true };

/** Return the launches of one kind whose name contains `text` in any case, sorted. Ties keep the report's order. */
export function arranged(
  spots: readonly LaunchHotspot[],
  kind: string,
  text: string,
  { by, descending }: Order,
): LaunchHotspot[] {
  const wanted = text.trim().toLowerCase();
  const direction = descending ? -1 : 1;
  return spots
    .filter((spot) => spot.kind === kind && spot.key.toLowerCase().includes(wanted))
    .sort((a, b) => direction * (a[by] - b[by]));
}

/** Return the order after a click on a column header: largest first, reversed by a second click. */
export function pressed(order: Order, by: Figure): Order {
  return { by, descending: order.by === by ? !order.descending : true };
}
