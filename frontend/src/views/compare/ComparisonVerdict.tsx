import { percent } from "../../base/format";
import { GLOSSARY } from "../../base/vocabulary";
import { countText } from "../../state/comparison";
import type { Comparison } from "../../wire/report";

/** Is the candidate faster? The verdict, its figures, and what makes the two hard to compare. */
export function ComparisonVerdict({ comparison }: { comparison: Comparison }) {
  const { verdict, sentence, launches, mfu, notes } = comparison;
  // "Faster by 20%: 8 ms per step instead of 10 ms (medians of 5 and 6 steps; …). The mean step is …"
  const [, headline = sentence, details = "", rest = ""] =
    /^([^(]*?)(?: \(([^)]*)\))?\.(?:\s+(.*))?$/s.exec(sentence) ?? [];
  return (
    <section className="gd-card gd-verdict" aria-label="Verdict" data-verdict={verdict}>
      <span className="gd-over">The candidate, compared with the base</span>
      <h1>{headline}</h1>
      {rest && <p>{rest}</p>}
      {details && <p className="gd-muted">{upper(details)}.</p>}
      {launches && (
        <p className="gd-muted">
          Launches per step: {countText(launches.base)} → {countText(launches.candidate)}.
        </p>
      )}
      {mfu && (
        <p className="gd-muted" title={GLOSSARY.mfu}>
          MFU: {percent(mfu.base)}
          {mfu.base_of !== mfu.candidate_of && ` of ${mfu.base_of}`} → {percent(mfu.candidate)} of{" "}
          {mfu.candidate_of}.
        </p>
      )}
      {notes.length > 0 && (
        <ul className="gd-notes" aria-label="Notes">
          {notes.map((note, at) => (
            <li key={at}>{note}</li>
          ))}
        </ul>
      )}
    </section>
  );
}

function upper(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
