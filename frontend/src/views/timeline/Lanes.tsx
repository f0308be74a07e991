import {
  useEffect,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
  type RefCallback,
  type RefObject,
} from "react";
import { plural } from "../../base/format";
import type { Viewport } from "../../base/viewport";
import { draw } from "../../canvas/draw";
import type { LaneChoices, Row, Rows } from "../../canvas/rows";
import { HEAD_PX } from "../../canvas/scene";
import { gapsOf, type Gap, type Slice } from "../../canvas/slice";
import { usePage } from "../../state/store";
import { useShown } from "../parts/ShowOnTimeline";
import { onKey } from "./actions";
import { HoverCard } from "./HoverCard";
import { usePointer } from "./usePointer";

interface Props {
  readonly slice: Slice | null;
  readonly rows: Rows | null;
  readonly view: Viewport;
  readonly bounds: Viewport;
  readonly gaps: readonly Gap[];
  readonly width: number;
  /** True if the lanes must be as tall as the gap panel next to them. */
  readonly tall: boolean;
  readonly measure: RefCallback<HTMLDivElement | null>;
  readonly onToggle: (what: keyof LaneChoices, key: string) => void;
}

/** Taller lanes scroll inside the timeline. */
const TALLEST_PX = 460;
const NO_MARKS: readonly Viewport[] = [];
const EMPTY: Rows = { rows: [], height: 0 };

export function Lanes({ slice, rows, view, bounds, gaps, width, tall, measure, onToggle }: Props) {
  const laid = rows ?? EMPTY;
  const height = tall ? TALLEST_PX : Math.min(HEAD_PX + Math.max(laid.height, 80), TALLEST_PX);
  const [scroll, setScroll] = useState(0);
  const scroller = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  useLaneInSight(scroller, laid, height);
  const pointer = usePointer({ canvas, scroller, slice, rows: laid, view, bounds, width, scroll });
  useDrawing(canvas, { slice, rows: laid, view, width, height, scroll, hover: pointer.hover?.hit ?? null });

  return (
    <div
      className="gd-lanes"
      ref={scroller}
      style={{ height }}
      tabIndex={0}
      role="group"
      aria-label="Timeline. Arrow keys pan and zoom, 0 shows everything, n and p select the next shorter and longer gap, Escape clears."
      onScroll={(event) => {
        setScroll(event.currentTarget.scrollTop);
      }}
      onKeyDown={(event) => {
        if (event.ctrlKey || event.metaKey || event.altKey) return;
        if (onKey(event.key, view, bounds, gaps)) event.preventDefault();
      }}
    >
      <div className="gd-lanes-inner" style={{ height: Math.max(height, HEAD_PX + laid.height) }}>
        <div className="gd-labels">
          <div className="gd-labels-head" style={{ height: HEAD_PX }}>
            <span>Steps</span>
          </div>
          {laid.rows.map((row) => (
            <Label key={row.key} row={row} onToggle={onToggle} />
          ))}
        </div>
        <div className="gd-canvas" style={{ height }} ref={measure}>
          <canvas
            ref={canvas}
            style={{ width, height, cursor: pointer.cursor }}
            role="img"
            aria-label={`Timeline with ${plural(laid.rows.length, "row")} and ${plural(gaps.length, "gap")}`}
            {...pointer.handlers}
          />
          {pointer.hover && <HoverCard hover={pointer.hover} width={width} height={height} />}
          {!slice && <p className="gd-lanes-wait">Loading the timeline…</p>}
        </div>
      </div>
    </div>
  );
}

interface LabelProps {
  readonly row: Row;
  readonly onToggle: Props["onToggle"];
}

function Label({ row, onToggle }: LabelProps) {
  const style = { top: HEAD_PX + row.top, height: row.height };
  const queues = row.kind === "queues";
  const foldable = queues || (row.kind === "thread" && row.depths > 1);
  return (
    <div className="gd-label" data-kind={row.kind} style={style} title={row.title}>
      {foldable ? (
        <button
          type="button"
          aria-expanded={!row.folded}
          onClick={() => {
            onToggle(queues ? "withQueues" : "folded", row.key);
          }}
        >
          {row.title}
        </button>
      ) : (
        <span>{row.title}</span>
      )}
      {row.outer > 0 && !row.folded && (
        <button
          type="button"
          className="gd-outer"
          aria-expanded={row.first === 0}
          title="Frames that span the whole trace"
          onClick={() => {
            onToggle("withOuter", row.key);
          }}
        >
          {plural(row.outer, "outer frame")}
        </button>
      )}
    </div>
  );
}

/** Scroll to the lanes of the current place's device, if they are out of sight. */
function useLaneInSight(scroller: RefObject<HTMLDivElement | null>, { rows }: Rows, height: number): void {
  const shown = useShown();
  const found = shown?.found;
  const device = shown?.found.ranges[shown.place]?.device;
  const lane = rows.find((row) => row.device === device);
  const top = lane?.top;
  const step = lane?.step ?? 0;
  useEffect(() => {
    const element = scroller.current;
    if (!element || !found || top === undefined) return;
    const above = top < element.scrollTop;
    const below = top + step > element.scrollTop + height - HEAD_PX;
    if (above || below) element.scrollTo({ top });
  }, [scroller, found, top, step, height]);
}

interface Drawn {
  readonly slice: Slice | null;
  readonly rows: Rows;
  readonly view: Viewport;
  readonly width: number;
  readonly height: number;
  readonly scroll: number;
  readonly hover: Parameters<typeof draw>[1]["hover"];
}

function useDrawing(canvas: RefObject<HTMLCanvasElement | null>, drawn: Drawn): void {
  const scheme = usePage((page) => page.scheme);
  const visible = usePage((page) => page.visible);
  const shown = useShown();
  const marks = shown?.found.ranges ?? NO_MARKS;
  const mark = shown ? (marks[shown.place] ?? null) : null;
  const selection = usePage((page) => page.selection);
  const opened = usePage((page) => page.gap);
  const { slice, rows, view, width, height, scroll, hover } = drawn;
  const gap = useMemo(() => {
    const found = slice
      ? gapsOf(slice).find((g) => g.gap === opened?.gap && g.device === opened.device)
      : undefined;
    return found ?? null;
  }, [slice, opened]);

  useLayoutEffect(() => {
    if (!visible || !slice || width === 0) return;
    const frame = requestAnimationFrame(() => {
      const element = canvas.current;
      const context = element?.getContext("2d", { alpha: false });
      if (!element || !context) return;
      const ratio = window.devicePixelRatio;
      const wide = Math.round(width * ratio);
      const high = Math.round(height * ratio);
      // Assigning the size clears the canvas, even if it does not change.
      if (element.width !== wide) element.width = wide;
      if (element.height !== high) element.height = high;
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      draw(context, { slice, rows, view, width, height, scroll, scheme, marks, mark, selection, gap, hover });
    });
    return () => {
      cancelAnimationFrame(frame);
    };
  }, [canvas, visible, scheme, slice, rows, view, width, height, scroll, marks, mark, selection, gap, hover]);
}
