/** Where "show on timeline" scrolls to. */
export const TIMELINE_ID = "gd-timeline";
