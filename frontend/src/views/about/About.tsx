import { count } from "../../base/format";
import type { Report } from "../../wire/report";
import { onlyMemory } from "../../state/kinds";
import { Section } from "../parts/Section";

/** What was read, and what had to be skipped or repaired. */
export function About({ report }: { report: Report }) {
  const { trace } = report;
  if (!trace) return null;
  const rows: [string, string][] = [
    ["File", trace.path],
    ["Events read", count(trace.events)],
    ["Events skipped", trace.malformed_events > 0 ? `${count(trace.malformed_events)} malformed` : "none"],
    ["Host", trace.host],
    ["Diagnosed by", report.generator],
  ];
  return (
    <Section title={onlyMemory(trace.kind) ? "About this file" : "About this trace"}>
      <dl className="gd-about">
        {rows
          .filter(([, value]) => value !== "")
          .map(([name, value]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ))}
      </dl>
      {trace.notes.length > 0 && (
        <ul className="gd-notes">
          {trace.notes.map((note, at) => (
            <li key={at}>{note}</li>
          ))}
        </ul>
      )}
    </Section>
  );
}
