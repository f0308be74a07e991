import { useWindowEvent } from "@mantine/hooks";
import { usePage } from "../../state/store";
import { onTimelineKey, type Stage } from "./keys";

function isTyping(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest("input, textarea, select, dialog, [role=menu]") !== null;
}

/** Keys of the whole view. */
export function useKeys(stage: Stage): void {
  useWindowEvent("keydown", (event) => {
    const { key, target } = event;
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (isTyping(target) || !usePage.getState().visible) return;
    const inLanes = target === document.body || (target instanceof Element && target.matches(".gd-lanes"));
    if (onTimelineKey(key, inLanes, stage)) event.preventDefault();
  });
}
