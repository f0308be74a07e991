import { useElementSize } from "@mantine/hooks";
import { useCallback, useState, type KeyboardEvent, type MouseEvent, type RefObject } from "react";
import type { RowSight } from "../../canvas/rowSight";
import type { Context } from "../../canvas/scene";
import { useCanvas } from "./useCanvas";

interface Props {
  /** What is drawn and which keys there are, for screen readers. */
  readonly label: string;
  readonly className?: string;
  readonly rows: number;
  readonly rowPx: number;
  /** Taller drawings scroll. */
  readonly tallestPx: number;
  readonly scroller: RefObject<HTMLDivElement | null>;
  /** Keep it with useCallback: what it paints is painted again when it changes. */
  readonly paint: (context: Context, sight: RowSight) => void;
  /** Return the box at a place, or null: y counts from the top of the first row. */
  readonly hit: (x: number, y: number, width: number) => number | null;
  readonly onHover: (box: number | null) => void;
  readonly onPick: (box: number | null) => void;
  /** Return whether the key did something. */
  readonly onKey: (key: string) => boolean;
}

/** Rows of boxes on a canvas. They scroll where there are more than fit, and only those in sight are painted. */
export function CanvasRows(props: Props) {
  const {
    label,
    className = "",
    rows,
    rowPx,
    tallestPx,
    scroller,
    paint,
    hit,
    onHover,
    onPick,
    onKey,
  } = props;
  const { ref, width } = useElementSize();
  const [scroll, setScroll] = useState(0);
  const whole = rows * rowPx;
  const height = Math.min(Math.max(whole, rowPx), tallestPx);
  const paintSight = useCallback(
    (context: Context) => paint(context, { width, height, scroll }),
    [paint, width, height, scroll],
  );
  const canvas = useCanvas(width, height, paintSight);

  const boxUnder = (event: MouseEvent<HTMLDivElement>) => {
    const box = event.currentTarget.getBoundingClientRect();
    return hit(event.clientX - box.left, event.clientY - box.top + scroll, width);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (onKey(event.key)) event.preventDefault();
  };
  return (
    <>
      <div ref={ref} />
      <div
        className={`gd-flame-box ${className}`.trimEnd()}
        ref={scroller}
        style={{ height }}
        tabIndex={0}
        role="group"
        aria-label={label}
        onKeyDown={onKeyDown}
        onScroll={(event) => setScroll(event.currentTarget.scrollTop)}
        onMouseMove={(event) => onHover(boxUnder(event))}
        onMouseLeave={() => onHover(null)}
        onClick={(event) => onPick(boxUnder(event))}
      >
        <canvas ref={canvas} style={{ width, height }} aria-hidden="true" />
        <div style={{ height: Math.max(0, whole - height) }} />
      </div>
    </>
  );
}
