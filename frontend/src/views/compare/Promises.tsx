import { time, timeBeside, words } from "../../base/format";
import { signedTime } from "../../state/comparison";
import { between } from "../../state/gain";
import type { Verified } from "../../wire/report";
import { Section } from "../parts/Section";
import { ExplainButton } from "../rule/ExplainButton";

const estimateWas: Record<Verified["promise"], string> = {
  INSIDE: "right",
  BELOW: "too high",
  ABOVE: "too low",
  CANNOT_TELL: "cannot tell",
  NONE: "",
};

/** What a fix was estimated to save, next to what it saved. */
export function Promises({ verified }: { verified: readonly Verified[] }) {
  const made = verified.filter(({ promise }) => promise !== "NONE");
  if (made.length === 0) return null;
  return (
    <Section
      title="Estimated and measured savings"
      aside={<span className="gd-muted">per step; measured is the effect of all changes together</span>}
    >
      <div className="gd-wide-plain" role="group" aria-label="Estimated and measured savings" tabIndex={0}>
        <table className="gd-plain">
          <thead>
            <tr>
              <th scope="col">Finding</th>
              <th scope="col" className="gd-number">
                Estimated
              </th>
              <th scope="col" className="gd-number">
                Measured
              </th>
              <th scope="col">The estimate was</th>
            </tr>
          </thead>
          <tbody>
            {made.map((row, at) => (
              <tr key={at} title={row.sentence}>
                <th scope="row">
                  <ExplainButton rule={row.rule} /> {words(row.name)}
                </th>
                <td className="gd-number">
                  {between(timeBeside(row.low_us, row.high_us), time(row.high_us))}
                </td>
                <td className="gd-number">{measured(row)}</td>
                <td>{estimateWas[row.promise]}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Section>
  );
}

function measured({ real_us, real_low_us, real_high_us }: Verified): string {
  if (real_low_us === real_high_us) return "";
  return real_us < 0 ? `${signedTime(-real_us)} slower` : time(real_us);
}
