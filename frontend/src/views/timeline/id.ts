/** The element that "Show on the timeline" scrolls to. */
export const TIMELINE_ID = "gd-timeline";
