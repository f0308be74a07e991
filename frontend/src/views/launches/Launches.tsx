import { SegmentedControl, TextInput } from "@mantine/core";
import { useState } from "react";
import { count, percent, time, words } from "../../base/format";
import { arranged, FIRST_ORDER, pressed, type Figure, type Order } from "../../state/launches";
import type { LaunchHotspot, Report } from "../../wire/report";
import { More } from "../parts/More";
import { Section } from "../parts/Section";

const FIRST = 8;

interface Column {
  readonly by: Figure;
  readonly title: string;
  readonly meaning: string;
}

const COLUMNS: readonly Column[] = [
  { by: "launches", title: "Launches", meaning: "A graph launch counts once" },
  { by: "host_us", title: "On the host", meaning: "Time inside the launch calls" },
  { by: "kernel_us", title: "On the GPU", meaning: "Time of the work that they launched" },
  {
    by: "empty_queue_share",
    title: "Empty queue",
    meaning: "Launches that found the GPU with nothing left to do",
  },
  { by: "idle_us", title: "Idle caused", meaning: "GPU idle time that ended with one of these launches" },
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
          <table className="gd-table gd-launches">
            <thead>
              <tr>
                <th scope="col">{words(kind)}</th>
                {COLUMNS.map((column) => (
                  <Title
                    key={column.by}
                    column={column}
                    order={order}
                    onPress={() => {
                      setOrder(pressed(order, column.by));
                    }}
                  />
                ))}
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
      {spots.length === 0 && <p className="gd-nothing">No launch has that in its name.</p>}
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
