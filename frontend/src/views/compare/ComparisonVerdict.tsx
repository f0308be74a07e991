import { percent, plural, time } from "../../base/format";
import { countText, intervalText, signed, signedTime } from "../../state/comparison";
import type { Comparison } from "../../wire/report";

/** Is the candidate faster? The verdict, its figures, and what makes the two hard to compare. */
export function ComparisonVerdict({ comparison }: { comparison: Comparison }) {
  const { verdict, sentence, step_us: step, launches, notes } = comparison;
  const [headline, ...details] = sentence.split(": "); // "Faster by 20%: 8 ms per step instead of 10 ms (…"
  return (
    <section className="gd-card gd-verdict" aria-label="Verdict" data-verdict={verdict}>
      <span className="gd-over">The candidate, compared with the base</span>
      <h1>{headline}</h1>
      {details.length > 0 && <p>{details.join(": ")}</p>}
      {step && (
        <dl className="gd-facts">
          <Fact name="Base, median step" value={time(step.base)} note={plural(step.base_steps, "step")} />
          <Fact
            name="Candidate, median step"
            value={time(step.candidate)}
            note={plural(step.candidate_steps, "step")}
          />
          <Fact
            name="Difference"
            value={signedTime(step.difference)}
            note={step.base > 0 ? signed(step.difference, percent(step.difference, step.base)) : ""}
          />
          {intervalText(step) && <Fact name="95% confidence interval" value={intervalText(step)} />}
          {launches && (
            <Fact
              name="Launches per step"
              value={`${countText(launches.base)} → ${countText(launches.candidate)}`}
            />
          )}
        </dl>
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

function Fact({ name, value, note = "" }: { name: string; value: string; note?: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        {value} {note && <small>{note}</small>}
      </dd>
    </div>
  );
}
