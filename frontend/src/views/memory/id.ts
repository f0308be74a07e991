/** The element that "Show in the memory view" scrolls to. */
export const MEMORY_ID = "gd-memory";
