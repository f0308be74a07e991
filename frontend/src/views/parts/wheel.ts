/** How far the wheel turns sideways; null if it turns up or down. With Shift, every wheel turns sideways. */
export function sideways({ deltaX, deltaY, shiftKey }: WheelEvent): number | null {
  if (shiftKey) return deltaX + deltaY;
  return Math.abs(deltaX) > Math.abs(deltaY) ? deltaX : null;
}
