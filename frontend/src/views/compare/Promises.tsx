import { time, words } from "../../base/format";
import { signedTime } from "../../state/comparison";
import type { Promised } from "../../wire/report";
import { Section } from "../parts/Section";
import { ExplainButton } from "../rule/ExplainButton";

/** What a fix was estimated to save, next to what it saved. */
export function Promises({ promised }: { promised: readonly Promised[] }) {
  if (promised.length === 0) return null;
  return (
    <Section
      title="Estimated and measured savings"
      aside={<span className="gd-muted">per step, for findings of the base that are gone</span>}
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
            </tr>
          </thead>
          <tbody>
            {promised.map(({ rule, name, low_us, high_us, real_us }, at) => (
              <tr key={at}>
                <th scope="row">
                  <ExplainButton rule={rule} /> {words(name)}
                </th>
                <td className="gd-number">
                  {low_us === high_us ? time(high_us) : `${time(low_us)} to ${time(high_us)}`}
                </td>
                <td className="gd-number">
                  {real_us < 0 ? `${signedTime(-real_us)} slower` : time(real_us)}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Section>
  );
}
