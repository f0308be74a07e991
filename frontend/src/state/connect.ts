// Connects the store to the surrounding window: URL, theme, visibility, TensorBoard's reload button.

import type { QueryClient } from "@tanstack/react-query";
import { isOurs, readHash, writeHash } from "../base/hash";
import {
  currentHash,
  pushHash,
  replaceHash,
  watchHash,
  watchReload,
  watchScheme,
  watchVisible,
} from "./frame";
import { TRACES } from "./queries";
import { linkOf, usePage, type PageState } from "./store";

/** Browsers limit how often a page may change its URL. Zooming would change it with every frame. */
const WRITE_AFTER_MS = 250;

/** Connect for the lifetime of the page. Returns a function that disconnects, for tests. */
export function connect(client: QueryClient): () => void {
  usePage.getState().openLink(readHash(currentHash()));
  const url = updateUrl();
  const stops = [
    watchScheme((scheme) => usePage.setState({ scheme })),
    watchVisible((visible) => {
      if (usePage.getState().visible !== visible) usePage.setState({ visible });
    }),
    watchHash((hash) => {
      if (isOurs(hash) && writeHash(hash, linkOf(usePage.getState())) !== hash) {
        url.follow(() => usePage.getState().openLink(readHash(hash)));
      }
    }),
    watchReload(() => {
      void client.invalidateQueries({ queryKey: TRACES });
    }),
    url.stop,
  ];
  return () => {
    for (const stop of stops) stop();
  };
}

/**
 * Return true if the user went somewhere else: to another view, trace or finding. The first view and the first trace
 * are not moves, because the page chose them.
 */
function moved(now: PageState, before: PageState): boolean {
  if (now.finding !== before.finding) return true;
  return (["tab", "trace", "base"] as const).some((key) => now[key] !== before[key] && before[key] !== null);
}

interface Url {
  /** Run an update of the store that comes from the URL: it adds no history entry. */
  readonly follow: (update: () => void) => void;
  readonly stop: () => void;
}

function updateUrl(): Url {
  let timer = 0;
  let following = false;
  const write = (state: PageState, change: (hash: string) => void) => {
    const before = currentHash();
    const after = writeHash(before, linkOf(state));
    if (state.visible && isOurs(before) && after !== before) change(after);
  };
  const unsubscribe = usePage.subscribe((now, before) => {
    const kept = [
      "tab",
      "base",
      "trace",
      "finding",
      "filter",
      "view",
      "shown",
      "selection",
      "within",
      "notes",
      "memoryOf",
      "gap",
      "event",
    ] as const;
    const same = kept.every((key) => now[key] === before[key]);
    if (same) return;
    window.clearTimeout(timer);
    if (!following && moved(now, before)) {
      // Back must return to the view as it was, so write what the timer has not written yet.
      write(before, replaceHash);
      write(now, pushHash);
      return;
    }
    timer = window.setTimeout(() => write(usePage.getState(), replaceHash), WRITE_AFTER_MS);
  });
  return {
    follow: (update) => {
      following = true;
      update();
      following = false;
    },
    stop: () => {
      window.clearTimeout(timer);
      unsubscribe();
    },
  };
}
