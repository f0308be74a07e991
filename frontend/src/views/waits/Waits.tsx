import { codeLine, count, time } from "../../base/format";
import type { Report, SyncSite } from "../../wire/report";
import { More } from "../parts/More";
import { Section } from "../parts/Section";
import { LinkedRow, ShowTitle } from "../parts/ShowOnTimeline";

const FIRST = 6;

const KINDS: Readonly<Record<string, string>> = {
  print: "A tensor as text",
  size: "A size that only the GPU knows (nonzero, boolean index)",
  condition: "An if on a tensor's value",
  item: ".item() or float()",
  copy_to_host: "Copy to the host (.cpu(), .tolist())",
  copy_to_device: "Copy to the device",
  device: "Wait for the whole device",
  event: "Wait for an event",
  stream: "Wait for a stream",
  copy: "Copy",
};

/** Where the host stopped until the GPU had caught up, and what that cost the GPU. */
export function Waits({ report }: { report: Report }) {
  if (report.sync_sites.length === 0) return null;
  return (
    <Section
      title="Waits for the GPU"
      aside={
        <span className="gd-muted">a wait costs nothing while the GPU still has work queued after it</span>
      }
    >
      <More items={report.sync_sites} first={FIRST}>
        {(shown) => (
          <table className="gd-table gd-waits">
            <thead>
              <tr>
                <th scope="col">Wait</th>
                <th scope="col">Where</th>
                <th scope="col" className="gd-number">
                  Times
                </th>
                <th scope="col" className="gd-number" title="How long the host stood still">
                  Host held
                </th>
                <th scope="col" className="gd-number" title="Until the host had launched something new">
                  GPU idle after
                </th>
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
  const where = site.place ? codeLine(site.place) || site.place.operator || site.place.function : "";
  return (
    <LinkedRow of={site}>
      <td>{KINDS[site.kind] ?? site.kind}</td>
      <td className="gd-name gd-mono" title={where}>
        {where}
      </td>
      <td className="gd-number">{count(site.count)}</td>
      <td className="gd-number">{time(site.held_us)}</td>
      <td className="gd-number">{time(site.refill_us)}</td>
    </LinkedRow>
  );
}
