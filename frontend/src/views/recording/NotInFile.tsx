import { isEmbedded } from "../../wire/client";
import { Section } from "../parts/Section";
import { NotInFile as Events } from "../timeline/NotInFile";

/** What a page without a server cannot show. */
export function NotInFile() {
  if (!isEmbedded()) return null;
  return (
    <Section title="Not in this file">
      <div className="gd-recording-block">
        <Events />
        <ul className="gd-bullets">
          <li>The details of a row of the tables of operators, and these tables for a range.</li>
          <li>Gaps other than the 200 longest.</li>
          <li>The allocations of a range, what was allocated at a moment, and the map of segments then.</li>
          <li>Other ranks, runs and recordings: their table, history and comparisons.</li>
        </ul>
        <p className="gd-muted">
          All of it is there in TensorBoard, and with <code>gpudiag serve</code>.
        </p>
      </div>
    </Section>
  );
}
