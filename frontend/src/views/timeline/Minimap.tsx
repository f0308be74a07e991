import { useElementSize } from "@mantine/hooks";
import { memo, useLayoutEffect, useRef, useState, type KeyboardEvent, type PointerEvent } from "react";
import { exactTime } from "../../base/format";
import { clamp, pan, span, toPixel, toTime, type Viewport } from "../../base/viewport";
import { clearedContext } from "../../canvas/fit";
import { MINIMAP_PX, paintMinimap } from "../../canvas/minimap";
import type { Slice } from "../../canvas/slice";
import { usePage } from "../../state/store";
import type { Finding } from "../../wire/report";
import { FindingMarks } from "./FindingMarks";

interface Props {
  readonly overview: Slice | null;
  readonly view: Viewport;
  readonly bounds: Viewport;
  readonly findings: readonly Finding[];
  /** Matches of the search in each of equally long parts of the recording. */
  readonly perPart: readonly number[];
}

type Grip = "start" | "end" | "window" | "new";

interface Drag {
  readonly grip: Grip;
  readonly x: number;
  readonly view: Viewport;
}

/** An edge of the window can be missed by this much. */
const EDGE_PX = 6;

/** A pointer that moves less than this is a click, which centers the window. */
const CLICK_PX = 3;

/** The whole recording in a strip, with a window that shows and moves the view. */
export function Minimap({ overview, view, bounds, findings, perPart }: Props) {
  const { ref, width } = useElementSize<HTMLDivElement>();
  const [drag, setDrag] = useState<Drag | null>(null);
  const left = toPixel(bounds, view.start_us, width);
  const right = toPixel(bounds, view.end_us, width);
  const { setView } = usePage.getState();
  const whole = span(view) >= span(bounds);
  const gripAt = (x: number): Grip => {
    if (whole) return "new";
    if (Math.abs(x - left) < EDGE_PX) return "start";
    if (Math.abs(x - right) < EDGE_PX) return "end";
    return x > left && x < right ? "window" : "new";
  };
  const xOf = (event: PointerEvent<HTMLElement>) =>
    event.clientX - event.currentTarget.getBoundingClientRect().left;
  const moveTo = (x: number, { grip, x: from, view: before }: Drag) => {
    const at = toTime(bounds, Math.min(Math.max(x, 0), width), width);
    if (grip === "window") setView(pan(before, ((x - from) / width) * span(bounds), bounds));
    else {
      const fixed =
        grip === "start" ? before.end_us : grip === "end" ? before.start_us : toTime(bounds, from, width);
      if (at !== fixed)
        setView(clamp({ start_us: Math.min(at, fixed), end_us: Math.max(at, fixed) }, bounds));
    }
  };
  return (
    <div
      className="gd-minimap"
      ref={ref}
      style={{ height: MINIMAP_PX }}
      onPointerDown={(event) => {
        if (event.button !== 0 || (event.target as Element).closest("button")) return;
        event.currentTarget.setPointerCapture(event.pointerId);
        const x = xOf(event);
        setDrag({ grip: gripAt(x), x, view });
      }}
      onPointerMove={(event) => {
        if (drag && Math.abs(xOf(event) - drag.x) >= CLICK_PX) moveTo(xOf(event), drag);
      }}
      onPointerUp={(event) => {
        const x = xOf(event);
        if (drag?.grip === "new" && Math.abs(x - drag.x) < CLICK_PX && !whole) {
          const half = span(view) / 2;
          const at = toTime(bounds, x, width);
          setView(clamp({ start_us: at - half, end_us: at + half }, bounds));
        }
        setDrag(null);
      }}
      onPointerCancel={() => {
        setDrag(null);
      }}
    >
      <Strip overview={overview} width={Math.round(width)} perPart={perPart} />
      <div className="gd-minimap-out" style={{ left: 0, width: Math.max(0, left) }} />
      <div className="gd-minimap-out" style={{ left: right, right: 0 }} />
      <div
        className="gd-minimap-window"
        style={{ left, width: Math.max(2, right - left) }}
        role="slider"
        tabIndex={0}
        aria-label="Visible range"
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={Math.round(((view.start_us - bounds.start_us) / span(bounds)) * 100)}
        aria-valuetext={`${exactTime(view.start_us)} to ${exactTime(view.end_us)}`}
        onKeyDown={(event) => {
          moveByKey(event, view, bounds);
        }}
      />
      <FindingMarks findings={findings} bounds={bounds} width={width} />
    </div>
  );
}

function moveByKey(event: KeyboardEvent, view: Viewport, bounds: Viewport): void {
  const by = { ArrowLeft: -0.25, ArrowRight: 0.25, PageUp: -1, PageDown: 1 }[event.key];
  if (by === undefined) return;
  event.preventDefault();
  event.stopPropagation();
  usePage.getState().setView(pan(view, by * span(view), bounds));
}

interface StripProps {
  readonly overview: Slice | null;
  readonly width: number;
  readonly perPart: readonly number[];
}

/** Painted again only when the whole recording changes, not when the view does. */
const Strip = memo(function Strip({ overview, width, perPart }: StripProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const scheme = usePage((page) => page.scheme);
  useLayoutEffect(() => {
    const context = overview && clearedContext(canvas.current, width, MINIMAP_PX);
    if (!context) return;
    paintMinimap(context, overview, width, scheme, perPart);
  }, [overview, width, scheme, perPart]);
  return (
    <canvas
      ref={canvas}
      style={{ width, height: MINIMAP_PX }}
      role="img"
      aria-label="Busy and idle time of the whole recording"
    />
  );
});
