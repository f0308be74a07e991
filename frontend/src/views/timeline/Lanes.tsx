import { useElementSize, useMergedRef } from "@mantine/hooks";
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
import { clearedContext } from "../../canvas/fit";
import { draw } from "../../canvas/draw";
import type { Rows } from "../../canvas/rows";
import { HEAD_PX, type Spot } from "../../canvas/scene";
import { gapsOf, type Slice } from "../../canvas/slice";
import { usePage } from "../../state/store";
import { useShown } from "../parts/ShowOnTimeline";
import { HoverCard } from "./HoverCard";
import { lineOf, scrollTo } from "./inSight";
import { LaneLabels } from "./LaneLabels";
import { NotePins } from "./Notes";
import type { Selected } from "./selected";
import type { LaneControls } from "./useLaneChoices";
import type { Notes } from "./useNotes";
import { usePointer } from "./usePointer";

interface Props {
  readonly slice: Slice | null;
  readonly rows: Rows | null;
  readonly view: Viewport;
  readonly bounds: Viewport;
  readonly gapCount: number;
  readonly width: number;
  readonly measure: RefCallback<HTMLDivElement | null>;
  readonly selected: Selected;
  /** Matches of the search. */
  readonly found: readonly Spot[];
  /** Everything else is dimmed. */
  readonly lit: readonly Viewport[] | null;
  readonly lanes: LaneControls;
  readonly notes: Notes;
}

const NO_MARKS: readonly Viewport[] = [];
const EMPTY: Rows = { rows: [], height: 0, pinned: 0, hidden: [] };

/** The lanes fill the room that they are given, and scroll in it. */
export function Lanes(props: Props) {
  const { slice, rows, view, bounds, gapCount, width, measure, selected, lanes } = props;
  const laid = rows ?? EMPTY;
  const [scroll, setScroll] = useState(0);
  const scroller = useRef<HTMLDivElement>(null);
  const { ref: sized, height } = useElementSize<HTMLDivElement>();
  const box = useMergedRef(scroller, sized);
  const canvas = useRef<HTMLCanvasElement>(null);
  useLaneInSight(scroller, laid, height, selected.event);
  const pointer = usePointer({ canvas, scroller, slice, rows: laid, view, bounds, width, scroll });
  useDrawing(canvas, props, { rows: laid, height, scroll, hover: pointer.hover?.hit ?? null });
  return (
    <div
      className="gd-lanes"
      ref={box}
      tabIndex={0}
      role="group"
      aria-label="Lanes. W, A, S and D zoom and pan, arrow keys go to other events, n and p to other gaps, question mark shows all keys."
      onScroll={(event) => setScroll(event.currentTarget.scrollTop)}
    >
      <div className="gd-lanes-inner" style={{ height: Math.max(height, HEAD_PX + laid.height) }}>
        <LaneLabels rows={laid} lanes={lanes} scroll={laid.pinned > 0 ? scroll : 0} />
        <div className="gd-canvas" style={{ height }} ref={measure}>
          <canvas
            ref={canvas}
            style={{ width, height, cursor: pointer.cursor }}
            role="img"
            aria-label={`Timeline with ${plural(laid.rows.length, "row")} and ${plural(gapCount, "gap")}`}
            {...pointer.handlers}
          />
          {slice && <NotePins notes={props.notes} view={view} width={width} />}
          {pointer.hover && <HoverCard hover={pointer.hover} width={width} height={height} />}
          {!slice && <p className="gd-lanes-wait">Loading the timeline…</p>}
        </div>
      </div>
    </div>
  );
}

/** Scroll to the selected event, or to the lanes of the current place's device, if they are out of sight. */
function useLaneInSight(
  scroller: RefObject<HTMLDivElement | null>,
  rows: Rows,
  height: number,
  event: Spot | null,
): void {
  const shown = useShown();
  const found = shown?.found;
  const { pinned } = rows;
  const line = lineOf(rows, event, found?.ranges[shown?.place ?? 0]?.device);
  const what = event ?? found;
  const { top, height: lineHeight } = line ?? {};
  useEffect(() => {
    const element = scroller.current;
    if (!element || !what || top === undefined || lineHeight === undefined || height === 0) return;
    const sight = { scroll: element.scrollTop, height, pinned };
    const to = scrollTo({ top, height: lineHeight }, sight, event ? height / 3 : pinned);
    if (to !== null) element.scrollTo({ top: to });
  }, [scroller, what, event, top, lineHeight, height, pinned]);
}

interface Drawn {
  readonly rows: Rows;
  readonly height: number;
  readonly scroll: number;
  readonly hover: Parameters<typeof draw>[1]["hover"];
}

function useDrawing(canvas: RefObject<HTMLCanvasElement | null>, props: Props, drawn: Drawn): void {
  const { slice, view, width, selected, found, lit } = props;
  const { rows, height, scroll, hover } = drawn;
  const { event, arrows } = selected;
  const scheme = usePage((page) => page.scheme);
  const visible = usePage((page) => page.visible);
  const shown = useShown();
  const marks = shown?.found.ranges ?? NO_MARKS;
  const mark = shown ? (marks[shown.place] ?? null) : null;
  const selection = usePage((page) => page.selection);
  const opened = usePage((page) => page.gap);
  const gap = useMemo(() => {
    const all = slice && opened ? gapsOf(slice) : [];
    return all.find((one) => one.gap === opened?.gap && one.device === opened.device) ?? null;
  }, [slice, opened]);
  useLayoutEffect(() => {
    if (!visible || !slice || width === 0) return;
    const frame = requestAnimationFrame(() => {
      const context = clearedContext(canvas.current, width, height);
      if (!context) return;
      const scene = { slice, rows, view, width, height, scroll, scheme, marks, mark, selection, gap, hover };
      draw(context, { ...scene, event, arrows, lit, found });
    });
    return () => cancelAnimationFrame(frame);
  }, [
    canvas,
    visible,
    scheme,
    slice,
    rows,
    view,
    width,
    height,
    scroll,
    marks,
    mark,
    selection,
    gap,
    hover,
    event,
    arrows,
    lit,
    found,
  ]);
}
