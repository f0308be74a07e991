import { date, sentence } from "../../base/format";
import type { History } from "../../wire/report";
import { Section } from "../parts/Section";

interface Props {
  readonly history: History;
  readonly onOpen: (point: number) => void;
}

/** What changed for good between recordings, and memory that grows over them. */
export function Changes({ history: { points, changes, drifts }, onOpen }: Props) {
  return (
    <Section title="What changed">
      {changes.length === 0 && drifts.length === 0 && (
        <p className="gd-nothing">Nothing changed for good between these recordings.</p>
      )}
      <ol className="gd-changes">
        {changes.map((change, index) => (
          <li key={index}>
            <b>{index + 1}</b>
            <span>{sentence(change.sentence)}</span>
            <button
              type="button"
              className="gd-link"
              title="Open the first recording after the change"
              onClick={() => {
                onOpen(change.point);
              }}
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
