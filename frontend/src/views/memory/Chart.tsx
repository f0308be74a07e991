import { useLayoutEffect, useRef, useState, type PointerEvent, type RefCallback } from "react";
import type uPlot from "uplot";
import { bytes, exactTime } from "../../base/format";
import { span, toPixel, toTime, type Viewport } from "../../base/viewport";
import { stepName } from "../../state/memory";
import { columnAt, type Columns } from "../../state/memoryCurve";
import { usePage } from "../../state/store";
import { useWheel } from "../parts/useWheel";
import { stepAt } from "../timeline/actions";
import { onKey } from "../timeline/keys";
import { drawnRange } from "../timeline/pointer";
import type { Marks } from "./marks";
import { AXIS_PX, dataOf, makePlot, RIGHT_PX, RULER_PX } from "./plot";

interface Props {
  readonly columns: Columns | null;
  readonly marks: Marks;
  readonly bounds: Viewport;
  /** Width of the whole chart, or 0 until it is measured. */
  readonly width: number;
  readonly measure: RefCallback<HTMLDivElement | null>;
  readonly label: string;
  readonly onStep: (by: 1 | -1) => void;
  /** The moment whose live memory is shown, or NaN. A click chooses another one. */
  readonly moment_us: number;
  readonly onMoment: (at_us: number) => void;
}

const HEIGHT_PX = 300;

/** A pointer that moves less than this between down and up is a click. */
const CLICK_PX = 4;

const NOTHING: Columns = { time_us: [], low: [], high: [], reserved: [] };

/** Allocated and reserved memory over time. Wheel and keys work as on the timeline. Dragging selects a range. */
export function Chart({ columns, marks, bounds, width, measure, label, onStep, moment_us, onMoment }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const stage = useRef<HTMLDivElement>(null);
  const inner = Math.max(width - AXIS_PX - RIGHT_PX, 1);
  const { view } = marks;
  usePlot(host, columns ?? NOTHING, marks, width);
  const [hover_px, setHover] = useState<number | null>(null);
  useWheel(stage, { view, bounds, width: inner }, () => setHover(null));
  const brush = useBrush(marks, inner, setHover, onMoment);
  return (
    <div
      className="gd-memory-chart"
      ref={measure}
      style={{ height: HEIGHT_PX }}
      tabIndex={0}
      role="group"
      aria-label={`${label}. Arrow keys pan and zoom, 0 shows everything, n and p select the next and previous step, Escape clears.`}
      onKeyDown={(event) => {
        if (event.ctrlKey || event.metaKey || event.altKey) return;
        const by = event.key === "n" ? 1 : event.key === "p" ? -1 : null;
        if (by) onStep(by);
        if (by || onKey(event.key, view, bounds)) event.preventDefault();
      }}
    >
      <div ref={host} role="img" aria-label={label} />
      <div
        className="gd-memory-stage"
        ref={stage}
        style={{ left: AXIS_PX, right: RIGHT_PX, bottom: RULER_PX }}
        {...brush}
      >
        {columns && view.start_us <= moment_us && moment_us <= view.end_us && (
          <span className="gd-memory-moment" style={{ left: toPixel(view, moment_us, inner) }} />
        )}
        {hover_px !== null && columns && (
          <Reading columns={columns} marks={marks} x={hover_px} width={inner} />
        )}
      </div>
      {!columns && <p className="gd-memory-wait">Loading the memory curve…</p>}
    </div>
  );
}

/** Keep one plot for the lifetime of the element. It draws the data of the latest render. */
function usePlot(
  host: React.RefObject<HTMLDivElement | null>,
  columns: Columns,
  marks: Marks,
  width: number,
): void {
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(marks);
  const visible = usePage((page) => page.visible);
  useLayoutEffect(() => {
    latest.current = marks;
  });
  useLayoutEffect(
    () => () => {
      plot.current?.destroy();
      plot.current = null;
    },
    [],
  );
  useLayoutEffect(() => {
    if (!host.current || width === 0 || !visible) return;
    plot.current ??= makePlot(host.current, width, HEIGHT_PX, () => latest.current);
    if (plot.current.width !== width) plot.current.setSize({ width, height: HEIGHT_PX });
    plot.current.setData(dataOf(columns));
  }, [host, columns, marks, width, visible]);
}

/** Select a range by dragging, or a step and a moment by clicking. */
function useBrush(
  { view, steps }: Marks,
  width: number,
  setHover: (x: number | null) => void,
  onMoment: (at_us: number) => void,
) {
  const [drag, setDrag] = useState<{
    readonly x: number;
    readonly view: Viewport;
    readonly moved: boolean;
  } | null>(null);
  const { setSelection } = usePage.getState();
  const spot = (event: PointerEvent<HTMLElement>) =>
    event.clientX - event.currentTarget.getBoundingClientRect().left;
  return {
    onPointerDown: (event: PointerEvent<HTMLElement>) => {
      if (event.button !== 0) return;
      event.currentTarget.setPointerCapture(event.pointerId);
      event.currentTarget.parentElement?.focus({ preventScroll: true, focusVisible: false });
      setDrag({ x: spot(event), view, moved: false });
      event.preventDefault();
    },
    onPointerMove: (event: PointerEvent<HTMLElement>) => {
      const x = Math.min(Math.max(spot(event), 0), width);
      setHover(x);
      if (!drag || (!drag.moved && Math.abs(x - drag.x) < CLICK_PX)) return;
      if (!drag.moved) setDrag({ ...drag, moved: true });
      const range = drawnRange(drag, x, width);
      if (span(range) > 0) setSelection(range);
    },
    onPointerUp: (event: PointerEvent<HTMLElement>) => {
      setDrag(null);
      if (!drag || drag.moved) return;
      const at = toTime(view, spot(event), width);
      setSelection(stepAt(steps, at));
      onMoment(at);
    },
    onPointerCancel: () => setDrag(null),
    onPointerLeave: () => setHover(null),
  };
}

interface ReadingProps {
  readonly columns: Columns;
  readonly marks: Marks;
  readonly x: number;
  readonly width: number;
}

const CARD_PX = 250;
const AWAY_PX = 12;

/** The values under the pointer. */
function Reading({ columns, marks: { view, steps }, x, width }: ReadingProps) {
  const at_us = toTime(view, x, width);
  const at = columnAt(columns, at_us);
  const [low = NaN, high = NaN, reserved = NaN] = [columns.low[at], columns.high[at], columns.reserved[at]];
  const step = steps.find(({ start_us, end_us }) => start_us <= at_us && at_us < end_us);
  const rows: [string, string][] = [
    ["Allocated", low === high ? bytes(high) : `${bytes(low)} to ${bytes(high)}`],
    ["Reserved", bytes(reserved)],
    ["Step", step ? stepName(step.name) : ""],
    ["Time", exactTime(at_us)],
  ];
  const left = x + AWAY_PX + CARD_PX > width ? x - AWAY_PX - CARD_PX : x + AWAY_PX;
  return (
    <>
      <span className="gd-memory-line" style={{ left: toPixel(view, at_us, width) }} />
      <div className="gd-hover" style={{ left, top: 8, width: CARD_PX }} role="tooltip">
        <dl>
          {rows
            .filter(([, value]) => value !== "" && value !== "n/a")
            .map(([name, value]) => (
              <div key={name} className="gd-memory-reading">
                <dt>{name}</dt>
                <dd>{value}</dd>
              </div>
            ))}
        </dl>
      </div>
    </>
  );
}
