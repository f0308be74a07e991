import { SegmentedControl } from "@mantine/core";
import { useState } from "react";
import { count, percent, sentence, time } from "../../base/format";
import type { LaunchHotspot, Report } from "../../wire/report";
import { More } from "../parts/More";
import { Section } from "../parts/Section";

const FIRST = 8;

/** Who launches the GPU's work, and what that costs: by operator, module or line. */
export function Launches({ report }: { report: Report }) {
  const kinds = [...new Set(report.launch_hotspots.map((spot) => spot.kind))];
  const [chosen, setChosen] = useState<string | null>(null);
  const kind = kinds.find((other) => other === chosen) ?? kinds[0];
  if (!kind) return null;
  return (
    <Section
      title="Launches"
      aside={
        kinds.length > 1 && (
          <SegmentedControl
            size="xs"
            aria-label="Launches by"
            data={kinds.map((value) => ({ value, label: `By ${value}` }))}
            value={kind}
            onChange={setChosen}
          />
        )
      }
    >
      <More key={kind} items={report.launch_hotspots.filter((spot) => spot.kind === kind)} first={FIRST}>
        {(shown) => (
          <table className="gd-table gd-launches">
            <thead>
              <tr>
                <th scope="col">{sentence(kind).slice(0, -1)}</th>
                <th scope="col" className="gd-number">
                  Launches
                </th>
                <th scope="col" className="gd-number" title="Time inside the launch calls">
                  On the host
                </th>
                <th scope="col" className="gd-number" title="Time of the work that they launched">
                  On the GPU
                </th>
                <th
                  scope="col"
                  className="gd-number"
                  title="Launches that found the GPU with nothing left to do"
                >
                  Empty queue
                </th>
                <th
                  scope="col"
                  className="gd-number"
                  title="GPU idle time that ended with one of these launches"
                >
                  Idle caused
                </th>
              </tr>
            </thead>
            <tbody>
              {shown.map((spot) => (
                <HotspotRow key={spot.key} spot={spot} />
              ))}
            </tbody>
          </table>
        )}
      </More>
    </Section>
  );
}

function HotspotRow({ spot }: { spot: LaunchHotspot }) {
  return (
    <tr>
      <td className="gd-name" title={spot.key}>
        {spot.key}
      </td>
      <td className="gd-number">{count(spot.launches)}</td>
      <td className="gd-number">{time(spot.host_us)}</td>
      <td className="gd-number">{time(spot.kernel_us)}</td>
      <td className="gd-number">{percent(spot.empty_queue_share)}</td>
      <td className="gd-number">{time(spot.idle_us)}</td>
    </tr>
  );
}
