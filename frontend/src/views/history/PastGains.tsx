import { percent, words } from "../../base/format";
import type { Ledger } from "../../wire/report";
import { Section } from "../parts/Section";
import { ExplainButton } from "../rule/ExplainButton";

/** What the fixes of each rule gave, by a ledger. */
export function PastGains({ ledger }: { ledger: Ledger | undefined }) {
  if (!ledger) return null;
  return (
    <Section
      title="Fixes that were verified"
      aside={<span className="gd-muted">promised and measured, by rule</span>}
    >
      {ledger.rules.length === 0 && <p className="gd-nothing">No fix yet.</p>}
      {ledger.rules.length > 0 && (
        <div className="gd-wide-plain" role="group" aria-label="Fixes that were verified" tabIndex={0}>
          <table className="gd-plain">
            <thead>
              <tr>
                <th scope="col">Rule</th>
                {["Range was right", "Gave less", "Gave more", "Cannot tell"].map((title) => (
                  <th key={title} scope="col" className="gd-number">
                    {title}
                  </th>
                ))}
                <th scope="col" className="gd-number" title="With fewer than 19 savings, nobody can say.">
                  90% of savings, of the most promised
                </th>
              </tr>
            </thead>
            <tbody>
              {ledger.rules.map((row) => {
                const judged = row.inside + row.below + row.above;
                return (
                  <tr key={row.rule} title={row.sentence}>
                    <th scope="row">
                      <ExplainButton rule={row.rule} /> {words(row.name)}
                    </th>
                    <td className="gd-number">{judged > 0 ? `${row.inside} of ${judged}` : ""}</td>
                    <td className="gd-number">{row.below || ""}</td>
                    <td className="gd-number">{row.above || ""}</td>
                    <td className="gd-number">{row.untold || ""}</td>
                    <td className="gd-number">
                      {row.high_share > 0
                        ? `${percent(row.low_share)} to ${percent(row.high_share)}`
                        : "too few"}
                    </td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      )}
      <ul className="gd-notes">
        {ledger.notes.map((note, at) => (
          <li key={at}>{note}</li>
        ))}
      </ul>
    </Section>
  );
}
