import { useEffect, useRef, useState, type PointerEvent, type RefObject } from "react";
import { aired, pan, span, toTime, zoom, type Viewport } from "../../base/viewport";
import { hit, type Hit } from "../../canvas/hit";
import type { Rows } from "../../canvas/rows";
import { HEAD_PX } from "../../canvas/scene";
import type { Slice } from "../../canvas/slice";
import { usePage } from "../../state/store";
import { sideways } from "../parts/wheel";
import { stepAt } from "./actions";

export interface Hover {
  readonly hit: Hit;
  readonly x: number;
  readonly y: number;
}

interface Wheeled {
  readonly canvas: RefObject<HTMLElement | null>;
  readonly view: Viewport;
  readonly bounds: Viewport;
  readonly width: number;
}

interface Stage extends Wheeled {
  readonly scroller: RefObject<HTMLDivElement | null>;
  readonly slice: Slice | null;
  readonly rows: Rows;
  readonly scroll: number;
}

interface Drag {
  readonly kind: "pan" | "select";
  readonly x: number;
  readonly y: number;
  readonly view: Viewport;
  readonly scroll: number;
  readonly moved: boolean;
}

/** A pointer that moves less than this between down and up is a click. */
const CLICK_PX = 4;

/** Zoom per unit of the wheel. A notch is usually 100 units. */
const WHEEL_ZOOM = 0.0016;
const LINE_PX = 30;

/** If the page scrolled this recently under a resting pointer, the wheel keeps scrolling the page. */
const PAGE_SCROLL_MS = 250;

export function usePointer(stage: Stage) {
  const { canvas, scroller, slice, rows, view, bounds, width, scroll } = stage;
  const [hover, setHover] = useState<Hover | null>(null);
  const [drag, setDrag] = useState<Drag | null>(null);
  const [onRuler, setOnRuler] = useState(false);
  const { setView, setSelection, openGap, openEvent } = usePage.getState();
  useWheel(stage, () => {
    setHover(null);
  });

  const spot = (event: PointerEvent<HTMLElement>) => {
    const box = event.currentTarget.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const under = (x: number, y: number): Hit | null =>
    slice && y > HEAD_PX ? hit(slice, rows, view, width, x, y - HEAD_PX, scroll) : null;

  const onPointerDown = (event: PointerEvent<HTMLElement>) => {
    if (event.button !== 0 || width === 0) return;
    event.currentTarget.setPointerCapture(event.pointerId);
    scroller.current?.focus({ preventScroll: true, focusVisible: false });
    const at = spot(event);
    const kind = event.shiftKey || at.y < HEAD_PX ? "select" : "pan";
    setDrag({ kind, ...at, view, scroll, moved: false });
    setHover(null);
    event.preventDefault();
  };

  const onPointerMove = (event: PointerEvent<HTMLElement>) => {
    const { x, y } = spot(event);
    if (!drag) {
      const found = under(x, y);
      setHover(found && { hit: found, x, y });
      setOnRuler(y < HEAD_PX);
      return;
    }
    const moved = drag.moved || Math.hypot(x - drag.x, y - drag.y) >= CLICK_PX;
    if (!moved) return;
    if (!drag.moved) setDrag({ ...drag, moved });
    if (drag.kind === "select") {
      const from = toTime(drag.view, drag.x, width);
      const to = toTime(drag.view, Math.min(Math.max(x, 0), width), width);
      setSelection({ start_us: Math.min(from, to), end_us: Math.max(from, to) });
      return;
    }
    setView(pan(drag.view, ((drag.x - x) / width) * span(drag.view), bounds));
    scroller.current?.scrollTo({ top: drag.scroll + drag.y - y });
  };

  const open = (found: Hit | null) => {
    const lane = found ? (slice?.lanes.get(found.row.key)?.index ?? -1) : -1;
    if (!found || found.queued) openGap(null);
    else if (found.gap !== null) openGap({ device: found.row.device, gap: found.gap });
    else if (found.count > 1) setView(aired(found));
    else if (lane >= 0) openEvent({ lane, depth: found.depth, start_us: found.start_us });
  };

  const onPointerUp = (event: PointerEvent<HTMLElement>) => {
    setDrag(null);
    if (!drag || drag.moved) return;
    const { x, y } = spot(event);
    setSelection(y < HEAD_PX ? stepAt(slice?.steps ?? [], toTime(view, x, width)) : null);
    open(under(x, y));
  };

  return {
    hover: drag?.moved ? null : hover,
    cursor: drag?.moved
      ? drag.kind === "pan"
        ? "grabbing"
        : "col-resize"
      : onRuler
        ? "col-resize"
        : hover && !hover.hit.queued
          ? "pointer"
          : "default",
    handlers: {
      onPointerDown,
      onPointerMove,
      onPointerUp,
      onPointerCancel: () => {
        setDrag(null);
      },
      onPointerLeave: () => {
        setHover(null);
      },
      onDoubleClick: (event: React.MouseEvent<HTMLElement>) => {
        const box = canvas.current?.getBoundingClientRect();
        const found = box ? under(event.clientX - box.left, event.clientY - box.top) : null;
        if (found) setView(aired(found));
      },
    },
  };
}

/** With the whole trace in view, nothing is left to zoom out: the wheel scrolls the lanes, and back to the top. */
function scrolls(event: WheelEvent, canvas: HTMLElement, { view, bounds }: Range): boolean {
  if (sideways(event) !== null || span(view) < span(bounds)) return false;
  const lanes = canvas.closest(".gd-lanes");
  return event.deltaY > 0 || (lanes !== null && lanes.scrollTop > 0);
}

interface Range {
  readonly view: Viewport;
  readonly bounds: Viewport;
}

/** Zoom and pan with the wheel. React's wheel listeners are passive, so they cannot stop the page from scrolling. */
export function useWheel({ canvas, view, bounds, width }: Wheeled, onZoom: () => void): void {
  const latest = useRef({ view, bounds, width, onZoom });
  useEffect(() => {
    latest.current = { view, bounds, width, onZoom };
  });
  useEffect(() => {
    const element = canvas.current;
    if (!element) return;
    let pageScrolled = -Infinity;
    const onScroll = (event: Event) => {
      if (event.target === document) pageScrolled = event.timeStamp;
    };
    const onMove = (event: MouseEvent) => {
      // Browsers also send move events when only the page moved under the pointer.
      if (event.movementX !== 0 || event.movementY !== 0) pageScrolled = -Infinity;
    };
    const onWheel = (event: WheelEvent) => {
      const now = latest.current;
      const zooms = event.ctrlKey || event.metaKey;
      if (!zooms && (event.timeStamp - pageScrolled < PAGE_SCROLL_MS || scrolls(event, element, now))) return;
      event.preventDefault();
      const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? LINE_PX : 1;
      const across = sideways(event);
      const { setView } = usePage.getState();
      if (across !== null) {
        setView(pan(now.view, ((across * unit) / now.width) * span(now.view), now.bounds));
      } else {
        const x = event.clientX - element.getBoundingClientRect().left;
        const factor = Math.exp(event.deltaY * unit * WHEEL_ZOOM);
        setView(zoom(now.view, factor, toTime(now.view, x, now.width), now.bounds));
      }
      now.onZoom();
    };
    element.addEventListener("wheel", onWheel, { passive: false });
    element.addEventListener("mousemove", onMove);
    document.addEventListener("scroll", onScroll, { passive: true });
    return () => {
      element.removeEventListener("wheel", onWheel);
      element.removeEventListener("mousemove", onMove);
      document.removeEventListener("scroll", onScroll);
    };
  }, [canvas]);
}
