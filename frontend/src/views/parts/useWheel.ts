import { useEffect, useEffectEvent, type RefObject } from "react";
import { usePage } from "../../state/store";
import { scrolls, wheeled, type Sight } from "./wheel";

/** If the page scrolled this recently under a resting pointer, the wheel keeps scrolling the page. */
const PAGE_SCROLL_MS = 250;

/** Zoom and pan with the wheel. React's wheel listeners are passive, so they cannot stop the page from scrolling. */
export function useWheel(canvas: RefObject<HTMLElement | null>, sight: Sight, onZoom: () => void): void {
  const turned = useEffectEvent((event: WheelEvent, element: HTMLElement, pageScrolls: boolean) => {
    const zooms = event.ctrlKey || event.metaKey;
    const scrolled = element.closest(".gd-lanes")?.scrollTop ?? 0;
    if (!zooms && (pageScrolls || scrolls(event, sight, scrolled))) return;
    event.preventDefault();
    const x = event.clientX - element.getBoundingClientRect().left;
    usePage.getState().setView(wheeled(event, x, sight));
    onZoom();
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
    const onWheel = (event: WheelEvent) =>
      turned(event, element, event.timeStamp - pageScrolled < PAGE_SCROLL_MS);
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
