import { count } from "../../base/format";
import { tableOf } from "../../base/tables";
import type { CompileLog, Report } from "../../wire/report";
import { TableRows } from "../parts/ReportTable";
import { Section } from "../parts/Section";

const TABLES = ["compilations", "graph_breaks", "without_graphs"] as const;

/** What torch.compile's log says: why it compiled, where graphs break, and why CUDA graphs are not used. */
export function Compilations({ report }: { report: Report }) {
  const log = report.compile_log;
  if (!log) return null;
  return (
    <Section title="torch.compile" aside={<span className="gd-muted">{about(log)}</span>}>
      {log.notes.map((note) => (
        <p key={note} className="gd-nothing">
          {note}
        </p>
      ))}
      {TABLES.flatMap((id) => tableOf(report, id) ?? []).map((table) => (
        <div className="gd-part" key={table.id}>
          <h3>{table.title}</h3>
          <TableRows table={table} />
        </div>
      ))}
    </Section>
  );
}

function about({ name, torch, malformed_entries: broken }: CompileLog): string {
  const parts = [name, torch && `torch ${torch}`, broken > 0 && `${count(broken)} unreadable entries`];
  return parts.filter(Boolean).join(" · ");
}
