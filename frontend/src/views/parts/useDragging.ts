import { useMemo, useRef, type DragEvent, type HTMLAttributes } from "react";

/** Rows of a table that can be dragged onto one another. */
export interface Dragging<T> {
  readonly can: (row: T) => boolean;
  /** For people: names the row while it is dragged into another program. */
  readonly name: (row: T) => string;
  readonly onDrop: (row: T, onto: T) => void;
}

/** The handlers for what is dragged, and for what it can be dropped on. */
export interface Dragged<T> {
  readonly source: (row: T) => HTMLAttributes<HTMLElement>;
  readonly target: (row: T) => HTMLAttributes<HTMLElement>;
}

/** The row that the pointer is above has this attribute: see data.css. */
const OVER = "data-over";

function mark(event: DragEvent<HTMLElement>, over: boolean): void {
  event.currentTarget.toggleAttribute(OVER, over);
}

/** Return the handlers for rows, or null if none can be dragged. */
export function useDragging<T>(dragging: Dragging<T> | undefined): Dragged<T> | null {
  // What is dragged comes from this page alone, never from what the browser hands over.
  const held = useRef<T | null>(null);
  return useMemo(() => {
    if (!dragging) return null;
    const { can, name, onDrop } = dragging;
    const takes = (row: T) => held.current !== null && held.current !== row && can(row);
    return {
      source: (row) =>
        can(row)
          ? {
              draggable: true,
              onDragStart: (event) => {
                held.current = row;
                event.dataTransfer.effectAllowed = "link";
                event.dataTransfer.setData("text/plain", name(row));
              },
              onDragEnd: () => {
                held.current = null;
              },
            }
          : {},
      target: (row) => ({
        onDragOver: (event) => {
          if (!takes(row)) return;
          event.preventDefault();
          event.dataTransfer.dropEffect = "link";
          mark(event, true);
        },
        onDragLeave: (event) => mark(event, false),
        onDrop: (event) => {
          mark(event, false);
          const from = held.current;
          if (from === null || !takes(row)) return;
          event.preventDefault();
          onDrop(from, row);
        },
      }),
    };
  }, [dragging]);
}
