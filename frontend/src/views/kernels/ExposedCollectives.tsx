import { bytes, count, time } from "../../base/format";
import { EXPOSURE_REASONS } from "../../base/vocabulary";
import type { ExposedCollectives as Row, Report } from "../../wire/report";
import { NumberTitle } from "../parts/NumberTitle";
import { More } from "../parts/More";
import { Section } from "../parts/Section";
import { LinkedRow, ShowTitle } from "../parts/ShowOnTimeline";

const FIRST = 10;

/** Collectives by the unit of the model that they are for, and why nothing computes beside them. */
export function ExposedCollectives({ report: { collectives } }: { report: Report }) {
  if (collectives.length === 0) return null;
  return (
    <Section
      title="Collectives"
      aside={<span className="gd-muted">exposed: nothing computes meanwhile</span>}
    >
      <More items={collectives} first={FIRST}>
        {(shown) => (
          <table className="gd-table gd-launches">
            <thead>
              <tr>
                <th scope="col">Collective</th>
                <NumberTitle column="collective_calls" />
                <NumberTitle column="message_size" />
                <NumberTitle column="collective_time" />
                <NumberTitle column="exposed_time" />
                <th scope="col">Why it is exposed</th>
                <ShowTitle />
              </tr>
            </thead>
            <tbody>
              {shown.map((row, at) => (
                <UnitRow key={at} row={row} />
              ))}
            </tbody>
          </table>
        )}
      </More>
    </Section>
  );
}

function UnitRow({ row }: { row: Row }) {
  const { word, explanation } = EXPOSURE_REASONS[row.why];
  const unit = [row.parallelism, row.unit].filter(Boolean).join(" · ");
  const why = row.late_in ? `${word}: ${row.late_in}` : word;
  return (
    <LinkedRow of={row}>
      <td className="gd-name" title={unit}>
        <b>{row.kind.replaceAll("_", "-")}</b> <span className="gd-muted">{unit}</span>
      </td>
      <td className="gd-number">{count(row.calls)}</td>
      <td className="gd-number">{row.bytes > 0 ? bytes(row.bytes) : ""}</td>
      <td className="gd-number">{time(row.us)}</td>
      <td className="gd-number">{time(row.exposed_us)}</td>
      <td className="gd-name" title={[explanation, row.late_in].filter(Boolean).join("\n")}>
        {why}
      </td>
    </LinkedRow>
  );
}
