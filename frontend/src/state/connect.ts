// Connects the store to the surrounding window: URL, theme, visibility, TensorBoard's reload button.

import type { QueryClient } from "@tanstack/react-query";
import { isOurs, readHash, writeHash } from "../base/hash";
import { currentHash, replaceHash, watchHash, watchReload, watchScheme, watchVisible } from "./frame";
import { TRACES } from "./queries";
import { linkOf, usePage } from "./store";

/** Browsers limit how often a page may change its URL. Zooming would change it with every frame. */
const WRITE_AFTER_MS = 250;

/** Connect for the lifetime of the page. Returns a function that disconnects, for tests. */
export function connect(client: QueryClient): () => void {
  usePage.getState().openLink(readHash(currentHash()));
  const stops = [
    watchScheme((scheme) => {
      usePage.setState({ scheme });
    }),
    watchVisible((visible) => {
      if (usePage.getState().visible !== visible) usePage.setState({ visible });
    }),
    watchHash((hash) => {
      if (isOurs(hash) && writeHash(hash, linkOf(usePage.getState())) !== hash) {
        usePage.getState().openLink(readHash(hash));
      }
    }),
    watchReload(() => {
      void client.invalidateQueries({ queryKey: TRACES });
    }),
    updateUrl(),
  ];
  return () => {
    for (const stop of stops) stop();
  };
}

function updateUrl(): () => void {
  let timer = 0;
  const write = () => {
    const before = currentHash();
    const after = writeHash(before, linkOf(usePage.getState()));
    if (usePage.getState().visible && isOurs(before) && after !== before) replaceHash(after);
  };
  const unsubscribe = usePage.subscribe((now, before) => {
    const kept = ["trace", "finding", "view", "shown", "selection", "memoryOf"] as const;
    const same = kept.every((key) => now[key] === before[key]);
    if (same) return;
    window.clearTimeout(timer);
    timer = window.setTimeout(write, WRITE_AFTER_MS);
  });
  return () => {
    window.clearTimeout(timer);
    unsubscribe();
  };
}
