import { SegmentedControl, TextInput } from "@mantine/core";
import { useState } from "react";
import { count, percent, plural, time, words } from "../../base/format";
import { arranged, FIRST_ORDER, pressed, isShown, type Figure, type Order } from "../../state/launches";
import type { LaunchHotspot, Report } from "../../wire/report";
import { More } from "../parts/More";
import { Section } from "../parts/Section";
import { LinkedRow, ShowTitle } from "../parts/ShowOnTimeline";
import { LaunchQueues } from "./LaunchQueues";

const FIRST = 8;

interface Column {
  readonly by: Figure;
  readonly title: string;
  readonly meaning: string;
  readonly text: (value: number) => string;
}

const COLUMNS: readonly Column[] = [
  { by: "launches", title: "Launches", meaning: "A graph launch counts once", text: count },
  { by: "host_us", title: "In the calls", meaning: "Time of the host inside the launch calls", text: time },
  {
    by: "full_queue_us",
    title: "Full queue",
    meaning:
      "Of the time in the calls: waiting for a place in a full queue. That is no fault: the GPU is behind",
    text: time,
  },
  {
    by: "dispatch_us",
    title: "Dispatch",
    meaning: "Time of the launching thread inside operators and outside any call, since its launch before",
    text: time,
  },
  {
    by: "python_us",
    title: "Python",
    meaning: "Time of the launching thread inside no operator and no call, since its launch before",
    text: time,
  },
  { by: "kernel_us", title: "On the GPU", meaning: "Time of the work that they launched", text: time },
  {
    by: "empty_queue_share",
    title: "Empty queue",
    meaning: "Launches that found the GPU with nothing left to do",
    text: percent,
  },
  {
    by: "idle_us",
    title: "Idle caused",
    meaning: "GPU idle time that ended with one of these launches",
    text: time,
  },
  {
    by: "idle_per_step_us",
    title: "Idle a step",
    meaning: "GPU idle time caused, for each step",
    text: time,
  },
];

/** Who launches the GPU's work, and what that costs: by operator, module, line or kernel. */
export function Launches({ report }: { report: Report }) {
  const kinds = [...new Set(report.launch_hotspots.map((spot) => spot.kind))];
  const [chosen, setChosen] = useState<string | null>(null);
  const [text, setText] = useState("");
  const [order, setOrder] = useState(FIRST_ORDER);
  const kind = kinds.find((other) => other === chosen) ?? kinds[0];
  if (!kind) return null;
  const spots = arranged(report.launch_hotspots, kind, text, order);
  const columns = COLUMNS.filter(({ by }) => isShown(by, report.launch_hotspots));
  return (
    <Section
      title="Launches"
      aside={
        <span className="gd-controls">
          <TextInput
            size="xs"
            aria-label="Find launches by name"
            placeholder="Find"
            value={text}
            onChange={(event) => {
              setText(event.currentTarget.value);
            }}
          />
          {kinds.length > 1 && (
            <SegmentedControl
              size="xs"
              aria-label="Launches by"
              data={kinds.map((value) => ({ value, label: `By ${value}` }))}
              value={kind}
              onChange={setChosen}
            />
          )}
        </span>
      }
    >
      <More key={kind} items={spots} first={FIRST}>
        {(shown) => (
          <div className="gd-wide">
            <table className="gd-table gd-launches">
              <thead>
                <tr>
                  <th scope="col">{words(kind)}</th>
                  {columns.map((column) => (
                    <Title
                      key={column.by}
                      column={column}
                      order={order}
                      onPress={() => {
                        setOrder(pressed(order, column.by));
                      }}
                    />
                  ))}
                  <ShowTitle />
                </tr>
              </thead>
              <tbody>
                {shown.map((spot) => (
                  <HotspotRow key={spot.key} spot={spot} columns={columns} />
                ))}
              </tbody>
            </table>
          </div>
        )}
      </More>
      {spots.length === 0 && <p className="gd-nothing">No launch has that in its name.</p>}
      <LaunchQueues queues={report.launch_queues} />
    </Section>
  );
}

function Title({ column, order, onPress }: { column: Column; order: Order; onPress: () => void }) {
  const { by, title, meaning } = column;
  const direction = order.descending ? "descending" : "ascending";
  const sorted = order.by === by;
  return (
    <th scope="col" className="gd-number" title={meaning} aria-sort={sorted ? direction : "none"}>
      <button type="button" className="gd-sort" onClick={onPress}>
        {title}
        <span aria-hidden="true">{sorted ? (order.descending ? " ▾" : " ▴") : ""}</span>
      </button>
    </th>
  );
}

function HotspotRow({ spot, columns }: { spot: LaunchHotspot; columns: readonly Column[] }) {
  const waited = spot.full_queue_launches;
  return (
    <LinkedRow of={spot}>
      <td className="gd-name" title={spot.key}>
        {spot.key}
      </td>
      {columns.map(({ by, text }) => (
        <td
          key={by}
          className="gd-number"
          title={
            by === "full_queue_us" && waited > 0
              ? `${plural(waited, "launch", "launches")} waited`
              : undefined
          }
        >
          {text(spot[by])}
        </td>
      ))}
    </LinkedRow>
  );
}
