import { bytes, count, time } from "../../base/format";
import { span, type Viewport } from "../../base/viewport";
import { change, where, who } from "../../state/memory";
import { usePage } from "../../state/store";
import type { RowPlaces } from "../../state/rowPlaces";
import type { DeviceMemory, MemorySite, TimeRange } from "../../wire/report";
import { More } from "../parts/More";
import { ShortTable, type ShortColumn } from "../parts/ShortTable";
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
  const columns: readonly ShortColumn<MemorySite>[] = [
    {
      title: "Allocated by",
      className: "gd-name",
      cell: (site) => (
        <>
          <Site operator={who(site)} line={where(site.place)} />
          {site.stack !== "" && <Stack stack={site.stack} />}
        </>
      ),
    },
    {
      title: seconds ? `In ${time(seconds * 1e6)}` : `Per ${trend.word || "step"}`,
      className: "gd-number",
      cell: ({ bytes_per_step }) => change(bytes_per_step * (seconds || 1)),
    },
    { figure: "still_live", cell: (site) => bytes(site.bytes) },
    { figure: "live_count", cell: (site) => count(site.count) },
    { figure: "median_size", cell: ({ size_bytes }) => bytes(size_bytes) },
    { figure: "live_steps", cell: ({ steps }) => count(steps) },
    {
      title: "When",
      className: "gd-memory-when",
      cell: ({ ranges }) => <Spark ranges={ranges} bounds={bounds} />,
    },
  ];
  return (
    <div className="gd-memory-growing">
      <h3>Growing allocations</h3>
      <More items={sites} first={FIRST}>
        {(shown) => (
          <div className="gd-wide">
            <ShortTable
              className="gd-table gd-memory-sites"
              columns={columns}
              rows={shown}
              linked
              onPress={markAll}
            />
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
