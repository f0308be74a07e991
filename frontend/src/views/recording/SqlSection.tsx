import { Button, NativeSelect, Textarea } from "@mantine/core";
import { useMemo, useState, type KeyboardEvent } from "react";
import type { Order } from "../../base/sorting";
import { SQL_QUESTIONS } from "../../base/vocabulary";
import { plural } from "../../base/format";
import { useSql, type SqlAsked } from "../../state/queries";
import { isEmbedded } from "../../wire/client";
import type { SqlColumn, SqlState, TraceEntry } from "../../wire/report";
import { DataTable, type Column } from "../parts/DataTable";
import { Section } from "../parts/Section";
import { Answer } from "../status/Answer";

/** Ask what no view shows: SQL over the tables of the trace. */
export function SqlSection({ entry }: { entry: TraceEntry }) {
  const [query, setQuery] = useState(SQL_QUESTIONS[0]?.query ?? "");
  const [asked, setAsked] = useState<SqlAsked | null>(null);
  const { data, error } = useSql(entry, asked);
  if (isEmbedded()) return null;
  const run = () => {
    if (query.trim() !== "") setAsked({ query, time: (asked?.time ?? 0) + 1 });
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    run();
  };
  const example = SQL_QUESTIONS.findIndex((each) => each.query === query);
  return (
    <Section title="SQL">
      <div className="gd-recording-block gd-sql">
        <NativeSelect
          label="Question"
          size="xs"
          value={String(example)}
          data={[
            ...(example < 0 ? [{ value: "-1", label: "Your own" }] : []),
            ...SQL_QUESTIONS.map(({ question }, at) => ({ value: String(at), label: question })),
          ]}
          onChange={(event) => setQuery(SQL_QUESTIONS[Number(event.currentTarget.value)]?.query ?? query)}
        />
        <Textarea
          label="Query"
          description="One SELECT. SHOW TABLES and DESCRIBE idle list tables and columns; times are in ns."
          rows={6}
          resize="vertical"
          maxLength={20_000}
          spellCheck={false}
          classNames={{ input: "gd-sql-text", description: "gd-muted" }}
          value={query}
          onChange={(event) => setQuery(event.currentTarget.value)}
          onKeyDown={onKeyDown}
        />
        <Button size="xs" variant="default" onClick={run} title="Ctrl+Enter">
          Run
        </Button>
      </div>
      {asked && (
        <Answer
          doing="Running the query"
          failed="The query failed"
          state={data}
          error={error}
          answer={data?.state === "ready" ? data : undefined}
        >
          {(found) => <Rows key={asked.time} found={found} />}
        </Answer>
      )}
    </Section>
  );
}

function Rows({ found }: { found: SqlState }) {
  const [order, setOrder] = useState<Order>({ by: "", descending: false });
  const columns = useMemo(() => found.columns.map(columnOf), [found]);
  const rows = useMemo(() => Array.from({ length: found.rows }, (_, row) => row), [found]);
  return (
    <>
      <p className="gd-nothing" role="status">
        {found.note || `${plural(found.rows, "row")}.`}
      </p>
      {found.rows > 0 && (
        <DataTable
          label="Rows of the query"
          columns={columns}
          rows={rows}
          rowKey={String}
          order={order}
          onOrder={setOrder}
        />
      )}
    </>
  );
}

function columnOf({ name, number, cells }: SqlColumn, at: number): Column<number> {
  const text = (row: number) => cells[row] ?? "";
  return {
    id: String(at),
    title: name,
    figures: number,
    value: (row) => (number && text(row) !== "" ? Number(text(row)) : text(row)),
    cell: (row) => <span title={text(row)}>{text(row)}</span>,
  };
}
