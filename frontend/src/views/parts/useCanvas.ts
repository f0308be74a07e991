import { useLayoutEffect, useRef, type RefObject } from "react";
import { clearedContext } from "../../canvas/fit";
import type { Context } from "../../canvas/scene";
import { usePage } from "../../state/store";

/**
 * Return the ref of a canvas of this size that is painted again when `paint` changes: keep it with useCallback. Nothing
 * is painted without a size, and while the page is hidden.
 */
export function useCanvas(
  width: number,
  height: number,
  paint: (context: Context) => void,
): RefObject<HTMLCanvasElement | null> {
  const canvas = useRef<HTMLCanvasElement>(null);
  const visible = usePage((page) => page.visible);
  useLayoutEffect(() => {
    const context = visible ? clearedContext(canvas.current, width, height) : null;
    if (context) paint(context);
  }, [width, height, paint, visible]);
  return canvas;
}
