import { useCallback, useEffect, useRef, type RefObject } from "react";
import type { Viewport } from "../../base/viewport";
import { usePage } from "../../state/store";
import type { TimelineEvent } from "../../wire/report";
import { onKey, zoomToEvent, mark, type Direction } from "./actions";
import type { GapSteps } from "./useGapSteps";

interface Stage {
  readonly view: Viewport;
  readonly bounds: Viewport;
  readonly selected: TimelineEvent | null;
  readonly gaps: GapSteps;
  readonly field: RefObject<HTMLInputElement | null>;
  readonly setHelp: (open: boolean) => void;
}

/** Timestamps are whole nanoseconds. */
const INSIDE_US = 0.0005;

const TO: Readonly<Record<string, Direction>> = {
  ArrowLeft: "previous",
  ArrowRight: "next",
  ArrowUp: "outer",
  ArrowDown: "inner",
};

/** Open the event next to this one in its row, or the one that encloses it, or the first in it. */
function stepEvent({ lane, depth, start_us, duration_us }: TimelineEvent, to: Direction): void {
  const { openEvent } = usePage.getState();
  if (to === "outer" && depth > 0) openEvent({ lane, depth: depth - 1, start_us });
  if (to === "inner") openEvent({ lane, depth: depth + 1, start_us });
  const end_us = start_us + duration_us;
  if (to === "next") openEvent({ lane, depth, start_us: Math.max(end_us, start_us + INSIDE_US) });
  if (to === "previous") openEvent({ lane, depth, start_us, previous: 1 });
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest("input, textarea, select, dialog, [role=menu]") !== null;
}

/** Keys of the whole view. Those that other controls need too work only where nothing else has the focus. */
export function useKeys(stage: Stage): (to: Direction) => void {
  const latest = useRef(stage);
  useEffect(() => {
    latest.current = stage;
  });
  const step = useCallback((to: Direction) => {
    const { selected } = latest.current;
    if (selected) stepEvent(selected, to);
  }, []);
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
      if (isTyping(event.target) || !usePage.getState().visible) return;
      if (does(event, latest.current, step)) event.preventDefault();
    };
    window.addEventListener("keydown", onKeyDown);
    return () => {
      window.removeEventListener("keydown", onKeyDown);
    };
  }, [step]);
  return step;
}

/** Run the action of a key. Returns false if the key has none. */
function does(event: KeyboardEvent, stage: Stage, step: (to: Direction) => void): boolean {
  const { view, bounds, selected, gaps, field, setHelp } = stage;
  const { key, target } = event;
  const inLanes = target === document.body || (target instanceof Element && target.matches(".gd-lanes"));
  if (key.length > 1 && key !== "Escape" && !inLanes) return false;
  const to = TO[key];
  if (key === "/") field.current?.focus();
  else if (key === "?") setHelp(true);
  else if (key === "m" || key === "M") mark(selected, view);
  else if (key === "n") gaps.shorter?.();
  else if (key === "p") gaps.longer?.();
  else if (to && selected) step(to);
  else if (key === "Enter" && selected) zoomToEvent(selected);
  else return onKey(key, view, bounds);
  return true;
}
