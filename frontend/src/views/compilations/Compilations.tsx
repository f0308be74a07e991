import { codePlace, count, time } from "../../base/format";
import type { Compilation, CompileLog, GraphBreak, Report, WithoutGraph } from "../../wire/report";
import { More } from "../parts/More";
import { NumberTitle } from "../parts/NumberTitle";
import { Section } from "../parts/Section";
import { LinkedRow, ShowTitle } from "../parts/ShowOnTimeline";

const FIRST = 6;

/** What torch.compile's log says: why it compiled, where graphs break, and why CUDA graphs are not used. */
export function Compilations({ report }: { report: Report }) {
  const log = report.compile_log;
  if (!log) return null;
  const recorded = log.compilations.filter(({ place }) => place && place.us > 0);
  return (
    <Section title="torch.compile" aside={<span className="gd-muted">{about(log)}</span>}>
      {log.notes.map((note) => (
        <p key={note} className="gd-nothing">
          {note}
        </p>
      ))}
      {recorded.length > 0 && <Compiled rows={recorded} />}
      {log.breaks.length > 0 && <Breaks rows={log.breaks} />}
      {log.without_graphs.length > 0 && <WithoutGraphs rows={log.without_graphs} />}
    </Section>
  );
}

function about({ name, torch, malformed_entries: broken }: CompileLog): string {
  const parts = [name, torch && `torch ${torch}`, broken > 0 && `${count(broken)} unreadable entries`];
  return parts.filter(Boolean).join(" · ");
}

function Compiled({ rows }: { rows: readonly Compilation[] }) {
  return (
    <More items={rows} first={FIRST}>
      {(shown) => (
        <table className="gd-table gd-compiled" aria-label="Compilations">
          <thead>
            <tr>
              <th scope="col">Function</th>
              <th scope="col">Why it was compiled</th>
              <NumberTitle column="compiled_before" />
              <NumberTitle column="compile_time" />
              <ShowTitle />
            </tr>
          </thead>
          <tbody>
            {shown.map((row, at) => (
              <LinkedRow key={at} of={row}>
                <td className="gd-name gd-mono">{row.place && codePlace(row.place)}</td>
                <td>{why(row)}</td>
                <td className="gd-number">{count(row.before)}</td>
                <td className="gd-number">{time(row.place?.us ?? 0)}</td>
              </LinkedRow>
            ))}
          </tbody>
        </table>
      )}
    </More>
  );
}

function why({ reasons, misses, before, failed }: Compilation): string {
  const parts = [
    failed && `failed: “${failed}”`,
    ...reasons,
    !failed && reasons.length === 0 && before === 0 && "for the first time",
    misses.length > 0 && `not in the cache: ${misses.join(", ")}`,
  ];
  return parts.filter(Boolean).join("; ");
}

function Breaks({ rows }: { rows: readonly GraphBreak[] }) {
  return (
    <More items={rows} first={FIRST}>
      {(shown) => (
        <table className="gd-table gd-compiled" aria-label="Graph breaks">
          <thead>
            <tr>
              <th scope="col">Graph break at</th>
              <th scope="col">Reason</th>
              <NumberTitle column="break_runs" />
              <NumberTitle column="between_graphs" />
              <ShowTitle />
            </tr>
          </thead>
          <tbody>
            {shown.map((row, at) => (
              <LinkedRow key={at} of={row}>
                <td className="gd-name gd-mono">{row.place && codePlace(row.place)}</td>
                <td>{row.reason}</td>
                <td className="gd-number">{count(row.runs)}</td>
                <td className="gd-number">{row.place && row.place.us > 0 ? time(row.place.us) : ""}</td>
              </LinkedRow>
            ))}
          </tbody>
        </table>
      )}
    </More>
  );
}

function WithoutGraphs({ rows }: { rows: readonly WithoutGraph[] }) {
  return (
    <More items={rows} first={FIRST}>
      {(shown) => (
        <table className="gd-table gd-compiled" aria-label="Without CUDA graphs">
          <thead>
            <tr>
              <th scope="col">No CUDA graph at</th>
              <th scope="col">Reason</th>
              <NumberTitle column="graphless_runs" />
              <NumberTitle column="graphless_time" />
              <ShowTitle />
            </tr>
          </thead>
          <tbody>
            {shown.map((row, at) => (
              <LinkedRow key={at} of={row}>
                <td className="gd-name gd-mono">{row.place && codePlace(row.place)}</td>
                <td>{row.reason}</td>
                <td className="gd-number">{count(row.runs)}</td>
                <td className="gd-number">{time(row.place?.us ?? 0)}</td>
              </LinkedRow>
            ))}
          </tbody>
        </table>
      )}
    </More>
  );
}
