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
          <li>The details of a row in the operator tables, and these tables for a selected range.</li>
          <li>Gaps other than the 200 longest.</li>
          <li>The allocations in a range, and live memory and segments at a moment.</li>
          <li>Other ranks, runs and recordings: tables, history and comparisons.</li>
        </ul>
        <p className="gd-muted">
          TensorBoard and <code>gpudiag serve</code> show all of this.
        </p>
      </div>
    </Section>
  );
}
