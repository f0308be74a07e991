import { sentence } from "../../base/format";
import { word } from "../../base/terms";
import { HANG_STATES } from "../../base/vocabulary";
import type { HangingRanks } from "../../wire/report";
import { PlaceName } from "../parts/PlaceName";
import type { ReportProps } from "../parts/reportProps";
import { Section } from "../parts/Section";
import { ShortTable, type ShortColumn } from "../parts/ShortTable";

const FIRST = 20;

const COLUMNS: readonly ShortColumn<HangingRanks>[] = [
  { title: "Ranks", heads: true, cell: ({ ranks_text }) => ranks_text },
  {
    title: "State",
    tip: ({ state }) => HANG_STATES[state].explanation,
    cell: ({ state }) => word(HANG_STATES, state),
  },
  { title: "Operation", className: "gd-name", cell: operationOf },
  { title: "Group", className: "gd-name", cell: ({ group }) => group },
  { title: "Called at", className: "gd-name", cell: ({ place }) => place && <PlaceName place={place} /> },
  { title: "Not called by ranks", cell: ({ waits_for_text }) => waits_for_text },
];

/** Which ranks hold up a job that hangs, where each rank is, and what to do. */
export default function HangView({ report: { hang, verdict } }: ReportProps) {
  if (!hang) return null;
  const culprits = new Set(hang.culprits);
  return (
    <>
      <section className="gd-card gd-verdict" aria-label="Verdict">
        <div className="gd-verdict-head">
          <span className="gd-over">Flight recorder</span>
          <h1>{verdict?.headline}</h1>
        </div>
        <p>{hang.sentence}</p>
        <div className="gd-first">
          <dl>
            <div>
              <dt>What to do</dt>
              <dd>{hang.advice}</dd>
            </div>
            {hang.notes.length > 0 && (
              <div>
                <dt>Notes</dt>
                <dd>
                  {hang.notes.map((note, at) => (
                    <p key={at}>{sentence(note)}</p>
                  ))}
                </dd>
              </div>
            )}
          </dl>
        </div>
      </section>
      {hang.ranks.length > 0 && (
        <Section title="Where the ranks are">
          <ShortTable
            className="gd-table gd-hang"
            label="Where the ranks are"
            box="Where the ranks are"
            columns={COLUMNS}
            rows={hang.ranks}
            first={FIRST}
            isMarked={({ ranks }) => ranks.some((rank) => culprits.has(rank))}
          />
        </Section>
      )}
    </>
  );
}

/** "all-reduce 11" counts the collectives of the group; sends and receives have no number. */
function operationOf({ operation, sequence }: HangingRanks): string {
  return sequence > 0 ? `${operation} ${sequence}` : operation;
}
