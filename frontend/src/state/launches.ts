import type { LaunchHotspot } from "../wire/report";

/** The columns of figures by which launches can be ordered. */
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

/** Those that say nothing where no launch waited for a full queue, or there are no steps. */
const WHERE_ANY: readonly Figure[] = ["full_queue_us", "idle_per_step_us"];

export function tells(figure: Figure, spots: readonly LaunchHotspot[]): boolean {
  return !WHERE_ANY.includes(figure) || spots.some((spot) => spot[figure] > 0);
}

export interface Order {
  readonly by: Figure;
  readonly descending: boolean;
}

/** What the report ranks by: the idle time that launches are to blame for. */
export const FIRST_ORDER: Order = { by: "idle_us", descending: true };

/** One kind's launches whose name holds the text, in any case, in this order; equals stay as the report has them. */
export function arranged(
  spots: readonly LaunchHotspot[],
  kind: string,
  text: string,
  { by, descending }: Order,
): LaunchHotspot[] {
  const wanted = text.trim().toLowerCase();
  const sign = descending ? -1 : 1;
  return spots
    .filter((spot) => spot.kind === kind && spot.key.toLowerCase().includes(wanted))
    .sort((a, b) => sign * (a[by] - b[by]));
}

/** A press on a column's title: that column, largest first; the same one again turns it round. */
export function pressed(order: Order, by: Figure): Order {
  return { by, descending: order.by === by ? !order.descending : true };
}
