import { cellText, tableOf } from "../../base/tables";
import type { Against } from "../../state/base";
import type { Report } from "../../wire/report";
import { Section } from "../parts/Section";
import { LinkedRow, ShowTitle } from "../parts/ShowOnTimeline";
import { KeyFigures } from "./KeyFigures";

/** Rows that fit next to the fix. The Operators view has all of them. */
const FIRST = 8;

const SHOWN: ReadonlySet<string> = new Set(["activity", "host_time"]);

/** The main thread's time by activity, for a trace without a GPU. */
export function HostAccount({ report, against }: { report: Report; against: Against | null }) {
  const table = tableOf(report, "host");
  const columns = table?.columns.filter(({ id }) => SHOWN.has(id)) ?? [];
  return (
    <Section title="Where host time went">
      <div className="gd-account-body">
        {table && (
          <table className="gd-plain gd-host-account">
            <caption className="gd-unseen">Time of the main thread by activity</caption>
            <thead className="gd-unseen">
              <tr>
                {columns.map(({ id, title }) => (
                  <th key={id} scope="col">
                    {title}
                  </th>
                ))}
                <ShowTitle />
              </tr>
            </thead>
            <tbody>
              {table.rows.slice(0, FIRST).map((row, at) => (
                <LinkedRow of={row} key={at}>
                  {columns.map((column) => (
                    <td
                      key={column.id}
                      className={column.unit ? "gd-number" : "gd-name"}
                      title={column.unit ? undefined : cellText(column, at)}
                    >
                      {cellText(column, at)}
                    </td>
                  ))}
                </LinkedRow>
              ))}
            </tbody>
          </table>
        )}
        <KeyFigures report={report} against={against} />
      </div>
    </Section>
  );
}
