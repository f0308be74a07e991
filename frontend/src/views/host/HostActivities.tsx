import { codePlace, percent, time } from "../../base/format";
import { HOST_KINDS } from "../../base/vocabulary";
import { window_us } from "../../state/account";
import type { HostActivity, Report } from "../../wire/report";
import { NumberTitle } from "../parts/NumberTitle";
import { More } from "../parts/More";
import { Section } from "../parts/Section";
import { LinkedRow, ShowTitle } from "../parts/ShowOnTimeline";

const FIRST = 10;

/** Time of the main host thread by activity. For a trace without a GPU this is the diagnosis. */
export function HostActivities({ report }: { report: Report }) {
  if (report.host.length === 0) return null;
  const total_us = window_us(report);
  return (
    <Section
      title="Where host time went"
      aside={<span className="gd-muted">main thread, in the step window; nothing is counted twice</span>}
    >
      <More items={report.host} first={FIRST}>
        {(shown) => (
          <table className="gd-table gd-activities">
            <thead>
              <tr>
                <th scope="col">Activity</th>
                <th scope="col">Kind</th>
                <th scope="col">Where</th>
                <NumberTitle column="host_time" />
                <NumberTitle column="host_share" />
                <ShowTitle />
              </tr>
            </thead>
            <tbody>
              {shown.map((item, at) => (
                <ActivityRow key={at} item={item} total_us={total_us} />
              ))}
            </tbody>
          </table>
        )}
      </More>
    </Section>
  );
}

function ActivityRow({ item, total_us }: { item: HostActivity; total_us: number }) {
  const where = item.place ? codePlace(item.place) : "";
  // A function is an activity of its own.
  const elsewhere = where === item.name ? "" : where;
  return (
    <LinkedRow of={item}>
      <td className="gd-name" title={item.name}>
        {item.name}
      </td>
      <td title={HOST_KINDS[item.kind].explanation}>{HOST_KINDS[item.kind].word}</td>
      <td className="gd-name gd-mono" title={elsewhere}>
        {elsewhere}
      </td>
      <td className="gd-number">{time(item.us)}</td>
      <td className="gd-number">{percent(item.us, total_us)}</td>
    </LinkedRow>
  );
}
