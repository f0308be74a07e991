import { bytes, count, time } from "../../base/format";
import { span, type Viewport } from "../../base/viewport";
import { change, where, who } from "../../state/memory";
import { usePage } from "../../state/store";
import type { RowPlaces } from "../../state/rowPlaces";
import type { DeviceMemory, MemorySite, TimeRange } from "../../wire/report";
import { NumberTitle } from "../parts/NumberTitle";
import { More } from "../parts/More";
import { LinkedRow, ShowTitle } from "../parts/ShowOnTimeline";
import { Site } from "./RangePanel";

interface Props {
  readonly memory: DeviceMemory;
  readonly bounds: Viewport;
}

const FIRST = 6;

/** The allocations that grow with each step, by operator and line. */
export function GrowingSites({ memory: { sites, trend }, bounds }: Props) {
  // If the floor stays level, growth at one site is matched by another that shrinks.
  if (!trend || trend.state === "level" || sites.length === 0) return null;
  const seconds = trend.unit === "second" ? (trend.end_us - trend.start_us) / 1e6 : 0;
  return (
    <div className="gd-memory-growing">
      <h3>Growing allocations</h3>
      <More items={sites} first={FIRST}>
        {(shown) => (
          <div className="gd-wide">
            <table className="gd-table gd-memory-sites">
              <thead>
                <tr>
                  <th scope="col">Allocated by</th>
                  <th scope="col" className="gd-number">
                    {seconds ? `In ${time(seconds * 1e6)}` : `Per ${trend.word || "step"}`}
                  </th>
                  <NumberTitle column="still_live" />
                  <NumberTitle column="live_count" />
                  <NumberTitle column="median_size" />
                  <NumberTitle column="live_steps" />
                  <th scope="col" className="gd-memory-when">
                    When
                  </th>
                  <ShowTitle />
                </tr>
              </thead>
              <tbody>
                {shown.map((site, at) => (
                  <GrowingRow
                    key={at}
                    site={site}
                    grown={site.bytes_per_step * (seconds || 1)}
                    bounds={bounds}
                  />
                ))}
              </tbody>
            </table>
          </div>
        )}
      </More>
    </div>
  );
}

/** Mark all allocations of the site on the chart. A second click removes the marks. */
function markAll({ row }: RowPlaces): void {
  const { shown } = usePage.getState();
  usePage.setState(
    shown?.row === row ? { shown: null } : { shown: { row, place: 0 }, view: null, selection: null },
  );
}

interface RowProps {
  readonly site: MemorySite;
  readonly grown: number;
  readonly bounds: Viewport;
}

function GrowingRow({ site, grown, bounds }: RowProps) {
  return (
    <LinkedRow of={site} onPress={markAll}>
      <td className="gd-name">
        <Site operator={who(site)} line={where(site.place)} />
        {site.stack !== "" && <Stack stack={site.stack} />}
      </td>
      <td className="gd-number">{change(grown)}</td>
      <td className="gd-number">{bytes(site.bytes)}</td>
      <td className="gd-number">{count(site.count)}</td>
      <td className="gd-number">{bytes(site.size_bytes)}</td>
      <td className="gd-number">{count(site.steps)}</td>
      <td className="gd-memory-when">
        <Spark ranges={site.ranges} bounds={bounds} />
      </td>
    </LinkedRow>
  );
}

function Stack({ stack }: { stack: string }) {
  return (
    <details className="gd-memory-stack">
      <summary>Call stack</summary>
      <ol className="gd-stack" aria-label="Call stack, innermost first">
        {stack
          .split("\n")
          .reverse()
          .map((frame, at) => (
            <li key={at} title={frame}>
              {frame}
            </li>
          ))}
      </ol>
    </details>
  );
}

/** The times of the allocations, as marks along the recording. */
function Spark({ ranges, bounds }: { ranges: readonly TimeRange[]; bounds: Viewport }) {
  return (
    <svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
      {ranges.map(({ start_us }, at) => (
        <rect key={at} x={(100 * (start_us - bounds.start_us)) / span(bounds)} y="0" width="1" height="10" />
      ))}
    </svg>
  );
}
