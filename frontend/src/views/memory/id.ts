/** Where "show in memory" scrolls to. */
export const MEMORY_ID = "gd-memory";
