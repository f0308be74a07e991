import { cause, paint, partLabel } from "../../base/causes";
import { time } from "../../base/format";
import { difference, shownCauses, signedTime } from "../../state/comparison";
import { usePage } from "../../state/store";
import type { Comparison } from "../../wire/report";
import { CauseSwatch } from "../parts/CauseSwatch";
import { Section } from "../parts/Section";

/** Where the difference is: the mean step by cause. The differences add up to that of the whole. */
export function Causes({ comparison: { causes, mean_step_us: mean } }: { comparison: Comparison }) {
  const shown = shownCauses(causes);
  if (shown.length === 0) return null;
  const largest_us = Math.max(...shown.map((item) => Math.abs(difference(item))));
  return (
    <Section
      title="Where the difference is"
      aside={<span className="gd-muted">mean step by cause; the differences add up to the total</span>}
    >
      <div className="gd-wide-plain" role="group" aria-label="Mean step by cause" tabIndex={0}>
        <table className="gd-plain gd-causes">
          <thead>
            <tr>
              <th scope="col">Cause</th>
              <th scope="col" className="gd-number">
                Base
              </th>
              <th scope="col" className="gd-number">
                Candidate
              </th>
              <th scope="col" className="gd-number">
                Difference
              </th>
              <th scope="col" className="gd-diverging-title">
                <span>less</span>
                <span>more</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {shown.map((item) => (
              <tr key={item.cause} title={cause(item.cause).explanation}>
                <th scope="row">
                  <CauseSwatch name={item.cause} />
                  {partLabel(item.cause)}
                </th>
                <td className="gd-number">{time(item.base_us)}</td>
                <td className="gd-number">{time(item.candidate_us)}</td>
                <td className="gd-number">{signedTime(difference(item))}</td>
                <td>
                  <Diverging name={item.cause} share={difference(item) / largest_us} />
                </td>
              </tr>
            ))}
          </tbody>
          {mean && (
            <tfoot>
              <tr>
                <th scope="row">Mean step</th>
                <td className="gd-number">{time(mean.base)}</td>
                <td className="gd-number">{time(mean.candidate)}</td>
                <td className="gd-number">{signedTime(mean.difference)}</td>
                <td />
              </tr>
            </tfoot>
          )}
        </table>
      </div>
    </Section>
  );
}

/** A bar from the middle: to the left for less time, to the right for more. */
function Diverging({ name, share }: { name: string; share: number }) {
  const scheme = usePage((page) => page.scheme);
  const width = Number.isFinite(share) ? 50 * Math.abs(share) : 0;
  return (
    <div className="gd-diverging" aria-hidden="true">
      <span
        style={{
          left: `${share < 0 ? 50 - width : 50}%`,
          width: `${width}%`,
          background: paint(name, scheme),
        }}
      />
    </div>
  );
}
