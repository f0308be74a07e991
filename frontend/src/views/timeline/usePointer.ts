import { useState, type MouseEvent, type PointerEvent, type RefObject } from "react";
import { aired, toTime } from "../../base/viewport";
import { hit, type Hit } from "../../canvas/hit";
import type { Rows } from "../../canvas/rows";
import { HEAD_PX } from "../../canvas/scene";
import type { Slice } from "../../canvas/slice";
import { usePage } from "../../state/store";
import { useWheel } from "../parts/useWheel";
import type { Sight } from "../parts/wheel";
import { stepAt } from "./actions";
import { drawnRange, grabbed, movesFar, openedBy, pulled, type Drag, type Point } from "./pointer";

export interface Hover extends Point {
  readonly hit: Hit;
}

interface Stage extends Sight {
  readonly canvas: RefObject<HTMLElement | null>;
  readonly scroller: RefObject<HTMLDivElement | null>;
  readonly slice: Slice | null;
  readonly rows: Rows;
  readonly scroll: number;
}

export function usePointer(stage: Stage) {
  const { canvas, scroller, slice, rows, view, bounds, width, scroll } = stage;
  const [hover, setHover] = useState<Hover | null>(null);
  const [drag, setDrag] = useState<Drag | null>(null);
  const [onRuler, setOnRuler] = useState(false);
  const { setView, setSelection } = usePage.getState();
  useWheel(canvas, stage, () => setHover(null));

  const spot = (event: MouseEvent<HTMLElement>): Point => {
    const box = event.currentTarget.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const under = ({ x, y }: Point): Hit | null =>
    slice && y > HEAD_PX ? hit(slice, rows, view, width, x, y - HEAD_PX, scroll) : null;

  const onPointerDown = (event: PointerEvent<HTMLElement>) => {
    if (event.button !== 0 || width === 0) return;
    event.currentTarget.setPointerCapture(event.pointerId);
    scroller.current?.focus({ preventScroll: true, focusVisible: false });
    setDrag(grabbed(spot(event), event.shiftKey, view, scroll));
    setHover(null);
    event.preventDefault();
  };

  const onPointerMove = (event: PointerEvent<HTMLElement>) => {
    const at = spot(event);
    if (!drag) {
      const found = under(at);
      setHover(found && { hit: found, ...at });
      setOnRuler(at.y < HEAD_PX);
      return;
    }
    if (!movesFar(drag, at)) return;
    if (!drag.moved) setDrag({ ...drag, moved: true });
    if (drag.kind === "select") {
      setSelection(drawnRange(drag, at.x, width));
      return;
    }
    const to = pulled(drag, at, width, bounds);
    setView(to.view);
    scroller.current?.scrollTo({ top: to.scroll });
  };

  const onPointerUp = (event: PointerEvent<HTMLElement>) => {
    setDrag(null);
    if (!drag || drag.moved) return;
    const at = spot(event);
    setSelection(at.y < HEAD_PX ? stepAt(slice?.steps ?? [], toTime(view, at.x, width)) : null);
    usePage.setState(openedBy(under(at), slice));
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
      onPointerCancel: () => setDrag(null),
      onPointerLeave: () => setHover(null),
      onDoubleClick: (event: MouseEvent<HTMLElement>) => {
        const found = under(spot(event));
        if (found) setView(aired(found));
      },
    },
  };
}
