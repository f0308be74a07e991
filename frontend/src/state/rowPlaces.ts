// The places on the timeline of each table row.

import { codePlace } from "../base/format";
import { rowTitle } from "../base/tables";
import type { Place, Report, TimeRange } from "../wire/report";
import { findingKeys } from "./findings";
import { onlyMemory } from "./kinds";

export interface RowPlaces {
  /** Identifies the row in a link: its list and its index there. */
  readonly row: string;
  readonly title: string;
  /** The most expensive first. A report contains only the first of many. */
  readonly ranges: readonly TimeRange[];
  /** The view that shows them: memory files have no timeline. */
  readonly view: "timeline" | "memory";
}

/** Map each message of the report to its places. Messages without a place on the timeline are left out. */
export function rowPlaces(report: Report): ReadonlyMap<object, RowPlaces> {
  const keys = findingKeys(report.findings);
  const all: (readonly [object, Listed])[] = [
    ...report.findings.map((finding, at) =>
      entry(finding, `finding.${keys[at] ?? at}`, finding.title, finding.ranges),
    ),
    ...report.launch_hotspots.map((spot, at) => entry(spot, `launches.${at}`, spot.key, spot.ranges)),
    ...report.tables.flatMap((table) =>
      table.rows.map((row, at) => entry(row, `${table.id}.${at}`, rowTitle(table, at), row.ranges)),
    ),
    ...steps(report),
    ...report.memory
      .flatMap(({ sites }) => sites)
      .map((site, at) => entry(site, `memory.${at}`, where(site.place) || site.operator, site.ranges)),
  ];
  const view = onlyMemory(report.trace?.kind) ? "memory" : "timeline";
  return new Map(
    all.flatMap(([message, found]) =>
      found.ranges.length > 0 ? [[message, { ...found, view }] as const] : [],
    ),
  );
}

type Listed = Omit<RowPlaces, "view">;

function entry(message: object, row: string, title: string, ranges: readonly TimeRange[]) {
  return [message, { row, title, ranges }] as const;
}

function where(place: Place | undefined): string {
  return place ? codePlace(place) || place.operator : "";
}

function steps({ devices, inferred_steps: inferred }: Report) {
  const lists = [
    ...devices.map(({ id, step_accounts }) => ({ name: `steps${id}`, id, accounts: step_accounts })),
    ...(inferred ? [{ name: "inferred", id: inferred.device, accounts: inferred.accounts }] : []),
  ];
  return lists.flatMap(({ name, id, accounts }) =>
    accounts.map((step, at) => {
      const range = { start_us: step.start_us, end_us: step.start_us + step.duration_us, device: id };
      return entry(step, `${name}.${at}`, step.name, [range]);
    }),
  );
}
