import { codePlace, count, time } from "../../base/format";
import type { Compilation, CompileLog, GraphBreak, Report, WithoutGraph } from "../../wire/report";
import { Section } from "../parts/Section";
import { ShortTable, type ShortColumn } from "../parts/ShortTable";

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
      <Table label="Compilations" columns={COMPILED} rows={recorded} />
      <Table label="Graph breaks" columns={BREAKS} rows={log.breaks} />
      <Table label="Without CUDA graphs" columns={WITHOUT_GRAPHS} rows={log.without_graphs} />
    </Section>
  );
}

function about({ name, torch, malformed_entries: broken }: CompileLog): string {
  const parts = [name, torch && `torch ${torch}`, broken > 0 && `${count(broken)} unreadable entries`];
  return parts.filter(Boolean).join(" · ");
}

const at = (title: string): ShortColumn<Pick<GraphBreak, "place">> => ({
  title,
  className: "gd-name gd-mono",
  cell: ({ place }) => place && codePlace(place),
});

const COMPILED: readonly ShortColumn<Compilation>[] = [
  at("Function"),
  { title: "Why it was compiled", cell: why },
  { figure: "compiled_before", cell: ({ before }) => count(before) },
  { figure: "compile_time", cell: ({ place }) => time(place?.us ?? 0) },
];

const BREAKS: readonly ShortColumn<GraphBreak>[] = [
  at("Graph break at"),
  { title: "Reason", cell: ({ reason }) => reason },
  { figure: "break_runs", cell: ({ runs }) => count(runs) },
  { figure: "between_graphs", cell: ({ place }) => (place && place.us > 0 ? time(place.us) : "") },
];

const WITHOUT_GRAPHS: readonly ShortColumn<WithoutGraph>[] = [
  at("No CUDA graph at"),
  { title: "Reason", cell: ({ reason }) => reason },
  { figure: "graphless_runs", cell: ({ runs }) => count(runs) },
  { figure: "graphless_time", cell: ({ place }) => time(place?.us ?? 0) },
];

interface TableProps<T> {
  readonly label: string;
  readonly columns: readonly ShortColumn<T>[];
  readonly rows: readonly T[];
}

function Table<T extends object>(props: TableProps<T>) {
  return (
    props.rows.length > 0 && <ShortTable className="gd-table gd-compiled" first={FIRST} linked {...props} />
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
