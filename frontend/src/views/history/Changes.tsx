import { date, sentence } from "../../base/format";
import type { History, HistoryPoint } from "../../wire/report";
import { Section } from "../parts/Section";

interface Props {
  readonly history: History;
  readonly onOpen: (point: number) => void;
}

function nothing(points: readonly HistoryPoint[]): string {
  const records = points.filter(({ record }) => record).length;
  if (records === 0) return "No lasting change.";
  return points.length - records > 1
    ? "No lasting change between the recordings whose traces were kept."
    : "Unknown: changes are found in traces, and these traces were not kept.";
}

/** What changed for good between recordings, and memory that grows over them. */
export function Changes({ history: { points, changes, drifts }, onOpen }: Props) {
  return (
    <Section title="What changed">
      {changes.length === 0 && drifts.length === 0 && <p className="gd-nothing">{nothing(points)}</p>}
      <ol className="gd-changes">
        {changes.map((change, index) => (
          <li key={index}>
            <b>{index + 1}</b>
            <span>{sentence(change.sentence)}</span>
            <button
              type="button"
              className="gd-link"
              title="Open the first recording after the change"
              onClick={() => onOpen(change.point)}
            >
              {date(points[change.point]?.time_s ?? 0)}
            </button>
          </li>
        ))}
      </ol>
      <ul className="gd-changes">
        {drifts.map((drift, index) => (
          <li key={index}>
            <b aria-hidden="true">↗</b>
            <span>{sentence(drift.sentence)}</span>
          </li>
        ))}
      </ul>
    </Section>
  );
}
