import { useElementSize } from "@mantine/hooks";
import { memo, useLayoutEffect, useRef, useState, type PointerEvent } from "react";
import { exactTime } from "../../base/format";
import { span, toPixel, type Viewport } from "../../base/viewport";
import { clearedContext } from "../../canvas/fit";
import { MINIMAP_PX, paintMinimap } from "../../canvas/minimap";
import type { Slice } from "../../canvas/slice";
import { usePage } from "../../state/store";
import type { Finding } from "../../wire/report";
import { FindingMarks } from "./FindingMarks";
import { centeredAt, draggedTo, gripAt, movedByKey, type WindowDrag } from "./minimapWindow";

interface Props {
  readonly overview: Slice | null;
  readonly view: Viewport;
  readonly bounds: Viewport;
  readonly findings: readonly Finding[];
  readonly onEvidence: (ranges: readonly Viewport[] | null) => void;
  /** Matches of the search in each of equally long parts of the recording. */
  readonly perPart: readonly number[];
}

/** A pointer that moves less than this is a click, which centers the window. */
const CLICK_PX = 3;

/** The whole recording in a strip, with a window that shows and moves the view. */
export function Minimap({ overview, view, bounds, findings, onEvidence, perPart }: Props) {
  const { ref, width } = useElementSize<HTMLDivElement>();
  const [drag, setDrag] = useState<WindowDrag | null>(null);
  const left = toPixel(bounds, view.start_us, width);
  const right = toPixel(bounds, view.end_us, width);
  const { setView } = usePage.getState();
  const whole = span(view) >= span(bounds);
  const xOf = (event: PointerEvent<HTMLElement>) =>
    event.clientX - event.currentTarget.getBoundingClientRect().left;
  return (
    <div
      className="gd-minimap"
      ref={ref}
      style={{ height: MINIMAP_PX }}
      onPointerDown={(event) => {
        if (event.button !== 0 || (event.target as Element).closest("button")) return;
        event.currentTarget.setPointerCapture(event.pointerId);
        const x = xOf(event);
        setDrag({ grip: gripAt(x, view, bounds, width), x, view });
      }}
      onPointerMove={(event) => {
        const x = xOf(event);
        if (!drag || Math.abs(x - drag.x) < CLICK_PX) return;
        const wanted = draggedTo(x, drag, bounds, width);
        if (wanted) setView(wanted);
      }}
      onPointerUp={(event) => {
        const x = xOf(event);
        if (drag?.grip === "new" && Math.abs(x - drag.x) < CLICK_PX && !whole) {
          setView(centeredAt(x, view, bounds, width));
        }
        setDrag(null);
      }}
      onPointerCancel={() => setDrag(null)}
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
          const wanted = movedByKey(event.key, view, bounds);
          if (!wanted) return;
          event.preventDefault();
          event.stopPropagation();
          setView(wanted);
        }}
      />
      <FindingMarks findings={findings} onEvidence={onEvidence} bounds={bounds} width={width} />
    </div>
  );
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
