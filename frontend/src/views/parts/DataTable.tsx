import { memo, useLayoutEffect, useMemo, useRef, useState, type MouseEvent, type ReactNode } from "react";
import { csv, titleOf, valueOf, type Unit } from "../../base/csv";
import { nextOrder, ordered, type Order, type SortValue } from "../../base/sorting";
import { CsvButton } from "./CsvButton";
import { useDragging, type Dragged, type Dragging } from "./useDragging";
import { useRoving } from "./useRoving";

export interface Column<T> {
  readonly id: string;
  readonly title: string;
  /** A tooltip. */
  readonly about?: string;
  /** Of the numbers that `value` returns, for a file of the table. */
  readonly unit?: Unit;
  /** The title in a file, where it is another one. */
  readonly fileTitle?: string;
  /** In pixels. Columns without one share what is left. */
  readonly width?: number;
  /** Figures are on the right, and sort from the largest at the first click. */
  readonly figures?: boolean;
  readonly value: (row: T) => SortValue;
  /** What a file has, where it is not what rows are sorted by. */
  readonly fileValue?: (row: T) => SortValue;
  /** Only in a file of the table. */
  readonly saved?: boolean;
  /** Nothing to sort by, and nothing for a file. */
  readonly unsorted?: boolean;
  readonly cell: (row: T) => ReactNode;
}

interface Props<T> {
  readonly label: string;
  readonly columns: readonly Column<T>[];
  readonly rows: readonly T[];
  /** Which rows belong into a file of the table; all of them if it is not given. */
  readonly saves?: (row: T) => boolean;
  readonly rowKey: (row: T) => string;
  readonly order: Order;
  readonly onOrder: (order: Order) => void;
  /** The rows are in order already, so that they are not sorted again. */
  readonly arranged?: boolean;
  readonly rowHeight?: number;
  /** CSS height at most; longer tables scroll. */
  readonly maxHeight?: string;
  /** The narrowest the table gets before it scrolls sideways, in pixels. */
  readonly minWidth?: number;
  /** A click on a row, or on the button in its first cell. */
  readonly onOpen?: (row: T) => void;
  /** Marks the row that is open. */
  readonly isOpen?: (row: T) => boolean;
  /** What a row can be dropped on, and what happens then. Whatever it does, keys can do it, too. */
  readonly dragging?: Dragging<T>;
  /** Where the table was scrolled to, and how to remember it. */
  readonly scroll?: { readonly top: number; readonly onScroll: (top: number) => void };
}

/** Shorter tables are rendered whole. */
const WHOLE = 80;

/** Rows above and below the visible ones. The next one that Tab reaches must exist. */
const OVERSCAN = 12;

/** The window moves by this many rows, so that not every pixel of scrolling renders. */
const STEP = 4;

const ROW_PX = 30;

/** A table with sortable columns and any number of rows. Only those around the visible ones are rendered. */
export function DataTable<T>(props: Props<T>) {
  const { label, columns: every, rows, rowKey, order, onOrder, onOpen, isOpen, scroll, saves } = props;
  const dragged = useDragging(props.dragging);
  const { arranged = false, rowHeight = ROW_PX, maxHeight = "560px", minWidth } = props;
  const columns = useMemo(() => every.filter(({ saved }) => !saved), [every]);
  const by = every.find(({ id }) => id === order.by);
  const all = useMemo(
    () => (by && !arranged ? ordered(rows, by.value, order.descending) : rows),
    [rows, by, order, arranged],
  );
  const { box, first, last } = useWindow(all.length, rowHeight, scroll);
  const onKeyDown = useRoving(box);
  const table = (
    <div
      className="gd-data"
      ref={box}
      style={{ maxHeight }}
      role="group"
      aria-label={label}
      onKeyDown={onKeyDown}
    >
      <table aria-label={label} aria-rowcount={all.length + 1} style={{ minWidth }}>
        <colgroup>
          {columns.map(({ id, width }) => (
            <col key={id} style={width === undefined ? {} : { width }} />
          ))}
        </colgroup>
        <thead>
          <tr aria-rowindex={1}>
            {columns.map((column) => (
              <Head key={column.id} column={column} order={order} onOrder={onOrder} />
            ))}
          </tr>
        </thead>
        <tbody>
          <Spacer rows={first} columns={columns.length} height={rowHeight} />
          {all.slice(first, last).map((row, at) => (
            <Row
              key={rowKey(row)}
              row={row}
              index={first + at}
              columns={columns}
              height={rowHeight}
              onOpen={onOpen}
              open={isOpen?.(row) ?? false}
              dragged={dragged}
            />
          ))}
          <Spacer rows={all.length - last} columns={columns.length} height={rowHeight} />
        </tbody>
      </table>
    </div>
  );
  const kept = every.filter(({ unsorted }) => !unsorted);
  const saved = () =>
    csv(
      kept.map(titleOf),
      (saves ? all.filter(saves) : all).map((row) =>
        kept.map(({ value, fileValue = value, unit }) => valueOf(fileValue(row), unit)),
      ),
    );
  return (
    <div className="gd-table-box">
      {table}
      {all.length > 0 && <CsvButton label={label} text={saved} />}
    </div>
  );
}

interface RowProps<T> {
  readonly row: T;
  readonly index: number;
  readonly columns: readonly Column<T>[];
  readonly height: number;
  readonly onOpen: ((row: T) => void) | undefined;
  readonly open: boolean;
  readonly dragged: Dragged<T> | null;
}

/** Rows that stay in sight while the table scrolls are not rendered again. */
const Row = memo(TableRow) as typeof TableRow;

function TableRow<T>({ row, index, columns, height, onOpen, open, dragged }: RowProps<T>) {
  return (
    <tr
      {...dragged?.target(row)}
      // The header is the first row.
      aria-rowindex={index + 2}
      className={onOpen && "gd-linked"}
      aria-current={open || undefined}
      style={{ height }}
      onClick={onOpen && opening(row, onOpen)}
    >
      {columns.map((column, at) => (
        <td
          key={column.id}
          className={column.figures ? "gd-number" : undefined}
          {...(at === 0 && dragged?.source(row))}
        >
          {at === 0 && onOpen ? (
            <button type="button" className="gd-open" onClick={() => onOpen(row)}>
              {column.cell(row)}
            </button>
          ) : (
            column.cell(row)
          )}
        </td>
      ))}
    </tr>
  );
}

/** Open a row at a click, unless the click is on a button or the user selects text to copy it. */
function opening<T>(row: T, open: (row: T) => void) {
  return (event: MouseEvent) => {
    const selecting = window.getSelection()?.isCollapsed === false;
    if (!selecting && !(event.target as Element).closest("button, input, label")) open(row);
  };
}

interface HeadProps<T> {
  readonly column: Column<T>;
  readonly order: Order;
  readonly onOrder: (order: Order) => void;
}

function Head<T>({ column, order, onOrder }: HeadProps<T>) {
  const { id, title, about, figures = false, unsorted } = column;
  const sorted = order.by === id;
  const direction = order.descending ? "descending" : "ascending";
  return (
    <th
      scope="col"
      title={about}
      className={figures ? "gd-number" : undefined}
      aria-sort={sorted ? direction : undefined}
    >
      {unsorted ? (
        title
      ) : (
        <button type="button" className="gd-sort" onClick={() => onOrder(nextOrder(order, id, figures))}>
          {title}
          <span aria-hidden="true">{sorted ? (order.descending ? " ↓" : " ↑") : ""}</span>
        </button>
      )}
    </th>
  );
}

function Spacer({ rows, columns, height }: { rows: number; columns: number; height: number }) {
  if (rows <= 0) return null;
  return (
    <tr aria-hidden="true">
      <td className="gd-spacer" colSpan={columns} style={{ height: rows * height }} />
    </tr>
  );
}

/** The rows to render: those in sight of the box and some around them. */
function useWindow(rows: number, rowHeight: number, scroll: Props<unknown>["scroll"]) {
  const box = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState({ from: 0, count: WHOLE });
  const [remembered] = useState(scroll);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    if (remembered) element.scrollTo({ top: remembered.top });
    const look = () => {
      const from = STEP * Math.floor(element.scrollTop / rowHeight / STEP);
      const count = Math.ceil(element.clientHeight / rowHeight) + 1;
      setSeen((now) => (now.from === from && now.count === count ? now : { from, count }));
      // A hidden frame has no height, and forgets where it was scrolled to.
      if (element.clientHeight > 0) remembered?.onScroll(element.scrollTop);
    };
    const observer = new ResizeObserver(look);
    observer.observe(element);
    element.addEventListener("scroll", look, { passive: true });
    look();
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", look);
    };
  }, [remembered, rowHeight]);
  if (rows <= WHOLE) return { box, first: 0, last: rows };
  const from = Math.min(seen.from, rows - seen.count);
  return {
    box,
    first: Math.max(0, from - OVERSCAN),
    last: Math.min(rows, from + seen.count + OVERSCAN),
  };
}
