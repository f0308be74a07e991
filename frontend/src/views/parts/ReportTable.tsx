import { useState, type CSSProperties, type ReactNode } from "react";
import { nextOrder, ordered, type Order } from "../../base/sorting";
import { cellText, shownColumns, sortValue, tableCsv, tableOf } from "../../base/tables";
import type { Report, Table, TableColumn } from "../../wire/report";
import { CsvButton } from "./CsvButton";
import { More } from "./More";
import { Section } from "./Section";
import { LinkedRow, ShowTitle } from "./ShowOnTimeline";

/** Rows before a click on "Show more". */
const FIRST = 10;

/** Columns with longer texts have what room there is, and wrap. */
const SHORT = 24;

/** Widths of columns in data.css. */
const PX = { number: 92, short: 150, long: 190, show: 96 } as const;

/** On a phone, rows are called by their first text, and have no others. */
const PHONE_PX = { first: 110, number: 66 } as const;

interface Props {
  readonly report: Pick<Report, "tables">;
  /** Names the table. */
  readonly id: string;
  /** A term of the glossary that explains the title. */
  readonly about?: string;
  /** Above the rows. */
  readonly children?: ReactNode;
}

/** A table of the report in a card of its own. Nothing if it has no rows. */
export function ReportTable({ report, id, about, children }: Props) {
  const table = tableOf(report, id);
  if (!table) return null;
  return (
    <Section
      title={table.title}
      {...(about === undefined ? {} : { about })}
      aside={<span className="gd-muted">{table.about}</span>}
    >
      {children}
      <TableRows table={table} />
    </Section>
  );
}

interface RowsProps {
  readonly table: Table;
  /** Only rows with this text in their first column, in any case. */
  readonly filter?: string;
}

/** The rows of a table, which a click on a title sorts, and their places on the timeline. */
export function TableRows({ table, filter = "" }: RowsProps) {
  const [order, setOrder] = useState<Order | null>(null);
  const columns = shownColumns(table);
  const names = columns.find(({ unit }) => !unit)?.texts ?? [];
  const wanted = filter.trim().toLowerCase();
  const found = table.rows.map((_, at) => at).filter((at) => names[at]?.toLowerCase().includes(wanted));
  const by = columns.find(({ id }) => id === order?.by);
  const rows = order && by ? ordered(found, (at) => sortValue(by, at), order.descending) : found;
  const linked = table.rows.some(({ ranges }) => ranges.length > 0);
  const classes = columns.map(classOf);
  // Without a longer text, the first one has what room there is.
  if (!classes.some((name) => LONG.has(name))) classes[0] = "gd-name";
  const px = classes.map((name) => PX[WIDTHS[name] ?? "long"]).reduce<number>((sum, each) => sum + each, 0);
  const figures = columns.filter(({ unit }) => unit).length + (linked ? 1 : 0);
  const style = {
    "--wide": `${px + (linked ? PX.show : 0)}px`,
    "--phone": `${PHONE_PX.first + figures * PHONE_PX.number}px`,
  } as CSSProperties;
  return (
    <>
      <More items={rows} first={FIRST}>
        {(shown) => (
          <div className="gd-wide" role="group" aria-label={table.title} tabIndex={0}>
            <table className="gd-table gd-rows" aria-label={table.title} style={style}>
              <thead>
                <tr>
                  {columns.map((column, at) => (
                    <Title
                      key={column.id}
                      {...{ column, order }}
                      className={classes[at]}
                      onOrder={setOrder}
                    />
                  ))}
                  {linked && <ShowTitle />}
                </tr>
              </thead>
              <tbody>
                {shown.map((at) => (
                  <Row key={at} {...{ table, columns, classes, at, linked }} />
                ))}
              </tbody>
            </table>
          </div>
        )}
      </More>
      <CsvButton label={table.title} text={() => tableCsv(table, rows)} />
    </>
  );
}

interface TitleProps {
  readonly column: TableColumn;
  readonly order: Order | null;
  readonly className: string | undefined;
  readonly onOrder: (order: Order) => void;
}

function Title({ column: { id, title, explanation, unit }, order, className, onOrder }: TitleProps) {
  const direction = order?.by === id ? (order.descending ? "descending" : "ascending") : undefined;
  const next = order ? nextOrder(order, id, unit !== "") : { by: id, descending: unit !== "" };
  return (
    <th scope="col" className={className} title={explanation || undefined} aria-sort={direction}>
      <button type="button" className="gd-sort" onClick={() => onOrder(next)}>
        {title}
        <span aria-hidden="true">{direction && (order?.descending ? "\u00a0▾" : "\u00a0▴")}</span>
      </button>
    </th>
  );
}

interface RowProps {
  readonly table: Table;
  readonly columns: readonly TableColumn[];
  readonly classes: readonly string[];
  readonly at: number;
  readonly linked: boolean;
}

function Row({ table, columns, classes, at, linked }: RowProps) {
  const row = table.rows[at];
  const cells = columns.map((column, place) => {
    const text = cellText(column, at);
    const tip = column.tips[at] ?? "";
    const whole = column.unit ? undefined : text;
    return (
      <td key={column.id} className={classes[place]} title={tip === "" ? whole : tip}>
        {text}
      </td>
    );
  });
  return linked && row ? <LinkedRow of={row}>{cells}</LinkedRow> : <tr>{cells}</tr>;
}

const LONG: ReadonlySet<string> = new Set(["gd-name", "gd-name gd-mono", "gd-sentence"]);

const WIDTHS: Readonly<Record<string, keyof typeof PX>> = { "gd-number": "number", "gd-short": "short" };

function classOf({ kind, unit, texts }: TableColumn): string {
  if (unit) return "gd-number";
  if (texts.every(({ length }) => length <= SHORT)) return "gd-short";
  if (kind === "text") return "gd-sentence";
  return kind === "code" ? "gd-name gd-mono" : "gd-name";
}
