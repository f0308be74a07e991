import { codePlace, count, time } from "../../base/format";
import { SYNC_KINDS } from "../../base/vocabulary";
import type { Report, SyncSite } from "../../wire/report";
import { NumberTitle } from "../parts/NumberTitle";
import { More } from "../parts/More";
import { Section } from "../parts/Section";
import { LinkedRow, ShowTitle } from "../parts/ShowOnTimeline";

const FIRST = 6;

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
      <More items={report.sync_sites} first={FIRST}>
        {(shown) => (
          <table className="gd-table gd-syncs">
            <thead>
              <tr>
                <th scope="col">Type</th>
                <th scope="col">Where</th>
                <NumberTitle column="sync_calls" />
                <NumberTitle column="host_blocked" />
                <NumberTitle column="idle_after" />
                <ShowTitle />
              </tr>
            </thead>
            <tbody>
              {shown.map((site, at) => (
                <SiteRow key={at} site={site} />
              ))}
            </tbody>
          </table>
        )}
      </More>
    </Section>
  );
}

function SiteRow({ site }: { site: SyncSite }) {
  const where = site.place ? codePlace(site.place) || site.place.operator : "";
  return (
    <LinkedRow of={site}>
      <td title={SYNC_KINDS[site.kind].explanation}>{SYNC_KINDS[site.kind].word}</td>
      <td className="gd-name gd-mono" title={where}>
        {where}
      </td>
      <td className="gd-number">{count(site.count)}</td>
      <td className="gd-number">{time(site.held_us)}</td>
      <td className="gd-number">{time(site.refill_us)}</td>
    </LinkedRow>
  );
}
