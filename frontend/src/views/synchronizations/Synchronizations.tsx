import { codePlace, count, time } from "../../base/format";
import { SYNC_KINDS } from "../../base/vocabulary";
import type { Report, SyncSite } from "../../wire/report";
import { Section } from "../parts/Section";
import { ShortTable, type ShortColumn } from "../parts/ShortTable";

const FIRST = 6;

const where = ({ place }: SyncSite) => (place ? codePlace(place) || place.operator : "");

const SITES: readonly ShortColumn<SyncSite>[] = [
  {
    title: "Type",
    tip: ({ kind }) => SYNC_KINDS[kind].explanation,
    cell: ({ kind }) => SYNC_KINDS[kind].word,
  },
  { title: "Where", className: "gd-name gd-mono", tip: where, cell: where },
  { figure: "sync_calls", cell: (site) => count(site.count) },
  { figure: "host_blocked", cell: ({ held_us }) => time(held_us) },
  { figure: "idle_after", cell: ({ refill_us }) => time(refill_us) },
];

/** The calls that blocked the host until the GPU had caught up, and the GPU idle time after them. */
export function Synchronizations({ report }: { report: Report }) {
  if (report.sync_sites.length === 0) return null;
  return (
    <Section
      title="Synchronizations"
      about="synchronization"
      aside={
        <span className="gd-muted">a synchronization costs nothing if the GPU still has work queued</span>
      }
    >
      <ShortTable
        className="gd-table gd-syncs"
        columns={SITES}
        rows={report.sync_sites}
        first={FIRST}
        linked
      />
    </Section>
  );
}
