import { SegmentedControl, TextInput } from "@mantine/core";
import { useState } from "react";
import { count, percent, plural, time, words } from "../../base/format";
import { term, word } from "../../base/terms";
import { COLUMNS } from "../../base/vocabulary";
import { arranged, FIRST_ORDER, pressed, isShown, type Figure, type Order } from "../../state/launches";
import type { LaunchHotspot, Report } from "../../wire/report";
import { More } from "../parts/More";
import { Section } from "../parts/Section";
import { LinkedRow, ShowTitle } from "../parts/ShowOnTimeline";

const FIRST = 8;

interface Column {
  readonly by: Figure;
  /** Id of its header. */
  readonly id: string;
  readonly text: (value: number) => string;
}

const SHOWN: readonly Column[] = [
  { by: "launches", id: "launches", text: count },
  { by: "host_us", id: "launch_api", text: time },
  { by: "full_queue_us", id: "full_queue_time", text: time },
  { by: "dispatch_us", id: "operator_overhead", text: time },
  { by: "python_us", id: "python_time", text: time },
  { by: "kernel_us", id: "gpu_time", text: time },
  { by: "empty_queue_share", id: "idle_gpu_share", text: percent },
  { by: "idle_us", id: "idle_caused", text: time },
  { by: "idle_per_step_us", id: "idle_per_step", text: time },
];

/** The launches and what they cost, by operator, module, line or kernel. */
export function Launches({ report }: { report: Report }) {
  const kinds = [...new Set(report.launch_hotspots.map((spot) => spot.kind))];
  const [chosen, setChosen] = useState<string | null>(null);
  const [text, setText] = useState("");
  const [order, setOrder] = useState(FIRST_ORDER);
  const kind = kinds.find((other) => other === chosen) ?? kinds[0];
  if (!kind) return null;
  const spots = arranged(report.launch_hotspots, kind, text, order);
  const columns = SHOWN.filter(({ by }) => isShown(by, report.launch_hotspots));
  return (
    <Section
      title="Launches"
      about="launch"
      aside={
        <span className="gd-controls">
          <TextInput
            size="xs"
            aria-label="Filter launches by name"
            placeholder="Filter"
            value={text}
            onChange={(event) => setText(event.currentTarget.value)}
          />
          {kinds.length > 1 && (
            <SegmentedControl
              size="xs"
              aria-label="Group launches"
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
                      onPress={() => setOrder(pressed(order, column.by))}
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
      {spots.length === 0 && <p className="gd-nothing">No launches match the filter.</p>}
    </Section>
  );
}

function Title({ column, order, onPress }: { column: Column; order: Order; onPress: () => void }) {
  const { by, id } = column;
  const direction = order.descending ? "descending" : "ascending";
  const sorted = order.by === by;
  return (
    <th
      scope="col"
      className="gd-number"
      title={term(COLUMNS, id)?.explanation}
      aria-sort={sorted ? direction : "none"}
    >
      <button type="button" className="gd-sort" onClick={onPress}>
        {word(COLUMNS, id)}
        <span aria-hidden="true">{sorted ? (order.descending ? "\u00a0▾" : "\u00a0▴") : ""}</span>
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
              ? `${plural(waited, "launch", "launches")} blocked`
              : undefined
          }
        >
          {text(spot[by])}
        </td>
      ))}
    </LinkedRow>
  );
}
