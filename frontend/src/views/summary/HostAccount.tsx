import { codePlace, percent, time } from "../../base/format";
import { HOST_KINDS } from "../../base/vocabulary";
import { window_us } from "../../state/account";
import type { Against } from "../../state/base";
import type { Report } from "../../wire/report";
import { Section } from "../parts/Section";
import { LinkedRow, ShowTitle } from "../parts/ShowOnTimeline";
import { KeyFigures } from "./KeyFigures";

/** Rows that fit next to the fix. The Operators view has all of them. */
const FIRST = 8;

/** The main thread's time by activity, for a trace without a GPU. */
export function HostAccount({ report, against }: { report: Report; against: Against | null }) {
  const total_us = window_us(report);
  return (
    <Section title="Where host time went">
      <div className="gd-account-body">
        {report.host.length > 0 && (
          <table className="gd-plain gd-host-account">
            <caption className="gd-unseen">Time of the main thread by activity</caption>
            <thead className="gd-unseen">
              <tr>
                <th scope="col">Activity</th>
                <th scope="col">Time</th>
                <th scope="col">Share</th>
                <ShowTitle />
              </tr>
            </thead>
            <tbody>
              {report.host.slice(0, FIRST).map((item, at) => (
                <LinkedRow of={item} key={at}>
                  <td
                    className="gd-name"
                    title={`${HOST_KINDS[item.kind].word} ${item.place ? codePlace(item.place) : ""}`}
                  >
                    {item.name}
                  </td>
                  <td className="gd-number">{time(item.us)}</td>
                  <td className="gd-number">{percent(item.us, total_us)}</td>
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
