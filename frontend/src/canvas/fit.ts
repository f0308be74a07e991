// The size of a canvas: in CSS pixels on the page, and in pixels of the screen inside.

/**
 * Return the cleared context of a canvas that is `width` times `height` CSS pixels large; its unit is a CSS pixel. Null
 * if there is nothing to draw on.
 */
export function clearedContext(
  canvas: HTMLCanvasElement | null,
  width: number,
  height: number,
): CanvasRenderingContext2D | null {
  const context = canvas?.getContext("2d");
  if (!canvas || !context || width <= 0 || height <= 0) return null;
  const ratio = window.devicePixelRatio || 1;
  const wide = Math.round(width * ratio);
  const high = Math.round(height * ratio);
  // Assigning a size makes a new bitmap, even if it does not change.
  if (canvas.width !== wide) canvas.width = wide;
  if (canvas.height !== high) canvas.height = high;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}
