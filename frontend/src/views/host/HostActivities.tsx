import { codePlace, percent, time } from "../../base/format";
import { HOST_KINDS } from "../../base/vocabulary";
import { window_us } from "../../state/account";
import type { HostActivity, Report } from "../../wire/report";
import { Section } from "../parts/Section";
import { ShortTable, type ShortColumn } from "../parts/ShortTable";

const FIRST = 10;

/** Where an activity is. A function is an activity of its own. */
function elsewhere({ place, name }: HostActivity): string {
  const where = place ? codePlace(place) : "";
  return where === name ? "" : where;
}

const columns = (total_us: number): readonly ShortColumn<HostActivity>[] => [
  { title: "Activity", className: "gd-name", tip: ({ name }) => name, cell: ({ name }) => name },
  {
    title: "Kind",
    tip: ({ kind }) => HOST_KINDS[kind].explanation,
    cell: ({ kind }) => HOST_KINDS[kind].word,
  },
  { title: "Where", className: "gd-name gd-mono", tip: elsewhere, cell: elsewhere },
  { figure: "host_time", cell: ({ us }) => time(us) },
  { figure: "host_share", cell: ({ us }) => percent(us, total_us) },
];

/** Time of the main host thread by activity. For a trace without a GPU this is the diagnosis. */
export function HostActivities({ report }: { report: Report }) {
  if (report.host.length === 0) return null;
  return (
    <Section
      title="Where host time went"
      aside={<span className="gd-muted">main thread, in the step window; nothing is counted twice</span>}
    >
      <ShortTable
        className="gd-table gd-activities"
        columns={columns(window_us(report))}
        rows={report.host}
        first={FIRST}
        linked
      />
    </Section>
  );
}
