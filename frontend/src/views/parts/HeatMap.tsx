import { useElementSize } from "@mantine/hooks";
import { useLayoutEffect, useRef, useState, type KeyboardEvent, type PointerEvent } from "react";
import { clearedContext } from "../../canvas/fit";
import { usePage } from "../../state/store";

export interface Cell {
  readonly row: number;
  readonly column: number;
}

interface Props {
  /** What the map shows, for screen readers. */
  readonly label: string;
  readonly rows: readonly string[];
  readonly columns: readonly string[];
  /** 0 to 1. */
  readonly strength: (cell: Cell) => number;
  readonly color: (column: number) => string;
  /** The cell in words. */
  readonly text: (cell: Cell) => string;
  /** Marks a cell with a dot. */
  readonly marked?: (cell: Cell) => boolean;
  readonly onPick: (row: number) => void;
}

const TALLEST_PX = 20;

/** Room for all rows. With more of them, each is lower, but never lower than a pixel. */
const HEIGHT_PX = 480;

const LABELS_PX = 52;

/** Column names narrower than this are unreadable. */
const NAME_FROM_PX = 34;

/** The smallest share is still visible, and differences between small shares are too. */
const SOFTENED = 0.6;

/** A map of rows by columns on a canvas, for any number of rows. Arrow keys move over it, Enter opens a row. */
export function HeatMap(props: Props) {
  const { label, rows, columns, text, onPick } = props;
  const { ref, width } = useElementSize();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [at, setAt] = useState<Cell | null>(null);
  const scheme = usePage((page) => page.scheme);
  const visible = usePage((page) => page.visible);
  const rowHeight = Math.max(1, Math.min(TALLEST_PX, HEIGHT_PX / rows.length));
  const height = Math.ceil(rowHeight * rows.length);
  const inner = Math.max(width - LABELS_PX, 1);
  const columnWidth = inner / columns.length;

  useLayoutEffect(() => {
    if (canvas.current && width > 0 && visible) {
      draw(canvas.current, props, { width: inner, height, rowHeight, columnWidth }, at);
    }
  }, [props, at, width, inner, height, rowHeight, columnWidth, scheme, visible]);

  const cellOf = (event: PointerEvent<HTMLCanvasElement>): Cell => {
    const box = event.currentTarget.getBoundingClientRect();
    return within(
      {
        row: Math.floor((event.clientY - box.top) / rowHeight),
        column: Math.floor((event.clientX - box.left) / columnWidth),
      },
      props,
    );
  };
  const onKey = (event: KeyboardEvent) => {
    const move = MOVES[event.key];
    if (move) {
      const from = at ?? { row: 0, column: 0 };
      setAt(at ? within({ row: from.row + move.row, column: from.column + move.column }, props) : from);
      event.preventDefault();
    }
    if (event.key === "Enter" && at) onPick(at.row);
  };
  const everyRow = Math.ceil(15 / rowHeight);
  return (
    <div className="gd-heat">
      <div ref={ref} />
      <div className="gd-heat-columns" style={{ marginLeft: LABELS_PX }} aria-hidden="true">
        {columnWidth >= NAME_FROM_PX &&
          columns.map((name, column) => (
            <span key={column} title={name} style={{ width: columnWidth }}>
              {name}
            </span>
          ))}
      </div>
      <div
        className="gd-heat-map"
        tabIndex={0}
        role="img"
        aria-label={`${label}. Arrow keys move over the cells, Enter opens a rank. The table below has the same figures.`}
        onKeyDown={onKey}
      >
        <div className="gd-heat-rows" style={{ width: LABELS_PX, height }} aria-hidden="true">
          {rows.map(
            (name, row) =>
              row % everyRow === 0 && (
                <span key={row} style={{ top: row * rowHeight, height: Math.max(rowHeight, 12) }}>
                  {name}
                </span>
              ),
          )}
        </div>
        <canvas
          ref={canvas}
          style={{ width: inner, height }}
          onPointerMove={(event) => setAt(cellOf(event))}
          onClick={() => {
            if (at) onPick(at.row);
          }}
        />
      </div>
      <p className="gd-heat-text" role="status">
        {at ? text(at) : "Hover over a cell to read it, click to open the report of its rank."}
      </p>
    </div>
  );
}

const MOVES: Readonly<Record<string, Cell | undefined>> = {
  ArrowUp: { row: -1, column: 0 },
  ArrowDown: { row: 1, column: 0 },
  ArrowLeft: { row: 0, column: -1 },
  ArrowRight: { row: 0, column: 1 },
};

function within({ row, column }: Cell, { rows, columns }: Props): Cell {
  const clamped = (value: number, length: number) => Math.max(0, Math.min(value, length - 1));
  return { row: clamped(row, rows.length), column: clamped(column, columns.length) };
}

interface Layout {
  readonly width: number;
  readonly height: number;
  readonly rowHeight: number;
  readonly columnWidth: number;
}

function draw(canvas: HTMLCanvasElement, props: Props, layout: Layout, at: Cell | null): void {
  const { width, height, rowHeight, columnWidth } = layout;
  const ctx = clearedContext(canvas, width, height);
  if (!ctx) return;
  const style = getComputedStyle(canvas);
  const gap = rowHeight >= 6 && columnWidth >= 6 ? 1 : 0;
  ctx.fillStyle = style.getPropertyValue("--line-soft");
  ctx.fillRect(0, 0, width, height);
  props.rows.forEach((_, row) => {
    props.columns.forEach((__, column) => {
      const cell = { row, column };
      const box = [column * columnWidth, row * rowHeight, columnWidth - gap, rowHeight - gap] as const;
      ctx.globalAlpha = 1;
      ctx.fillStyle = style.getPropertyValue("--surface");
      ctx.fillRect(...box);
      ctx.globalAlpha = Math.min(1, Math.max(0, props.strength(cell))) ** SOFTENED;
      ctx.fillStyle = props.color(column);
      ctx.fillRect(...box);
    });
  });
  ctx.globalAlpha = 1;
  ctx.fillStyle = style.getPropertyValue("--text");
  drawMarks(ctx, props, layout);
  if (at) {
    ctx.strokeStyle = style.getPropertyValue("--text");
    ctx.strokeRect(
      at.column * columnWidth + 0.5,
      at.row * rowHeight + 0.5,
      Math.max(columnWidth - 1, 1),
      Math.max(rowHeight - 1, 1),
    );
  }
}

function drawMarks(ctx: CanvasRenderingContext2D, props: Props, { rowHeight, columnWidth }: Layout): void {
  const radius = Math.min(rowHeight, columnWidth, 12) / 4;
  props.rows.forEach((_, row) => {
    props.columns.forEach((__, column) => {
      if (!props.marked?.({ row, column })) return;
      ctx.beginPath();
      ctx.arc((column + 0.5) * columnWidth, (row + 0.5) * rowHeight, Math.max(radius, 0.5), 0, 2 * Math.PI);
      ctx.fill();
    });
  });
}
