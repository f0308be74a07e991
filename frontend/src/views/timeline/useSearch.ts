import { useEffect, useEffectEvent, useRef, useState } from "react";
import type { Viewport } from "../../base/viewport";
import type { Slice } from "../../canvas/slice";
import { usePage } from "../../state/store";
import { PAGE, useMatches } from "../../state/timelineQuery";
import type { Wanted } from "../../wire/client";
import type { TimelineEvent, TraceEntry } from "../../wire/report";
import { goToEvent } from "./actions";
import { viewOfEvent } from "./goTo";
import { laneKey } from "./selected";

export interface Search {
  readonly wanted: Wanted;
  readonly set: (change: Partial<Wanted>) => void;
  /** True while the list of matches is open. */
  readonly open: boolean;
  readonly setOpen: (open: boolean) => void;
  readonly total: number;
  /** Index of the current match, -1 before the first one. */
  readonly at: number;
  readonly go: (at: number) => void;
  /** The loaded matches, and the index of the first. */
  readonly events: readonly TimelineEvent[];
  readonly first: number;
  readonly perPart: readonly number[];
  readonly loading: boolean;
  /** Why there is no answer, or "". */
  readonly problem: string;
}

interface Stage {
  readonly view: Viewport;
  readonly bounds: Viewport;
  readonly overview: Slice | null;
  readonly reveal: (lane: string) => void;
}

const NONE: readonly TimelineEvent[] = [];
const NO_PARTS: readonly number[] = [];

/** Search for events by name, and step through the matches. */
export function useSearch(entry: TraceEntry, { view, bounds, overview, reveal }: Stage): Search {
  const [wanted, setWanted] = useState<Wanted>({ text: "", regex: false, kind: "any" });
  const selection = usePage((page) => page.selection);
  // A range that is selected while the matches are open was chosen last, and closes them.
  const [openWith, setOpenWith] = useState<{ readonly selection: Viewport | null } | null>(null);
  const open = openWith !== null && (openWith.selection === selection || selection === null);
  const setOpen = (now: boolean) => setOpenWith(now ? { selection } : null);
  const [at, setAt] = useState(-1);
  const pending = useRef(false);
  const { data, error, isFetching } = useMatches(entry, wanted, at);
  const ready = data?.state === "ready" && wanted.text !== "" ? data : undefined;
  const show = (event: TimelineEvent) => {
    if (overview) reveal(laneKey(overview, event.lane));
    goToEvent(event, viewOfEvent(event, view, bounds));
  };
  const current = ready?.events[at - ready.first];
  const showLater = useEffectEvent(show);
  // The matches, or the page of this one, were not there when it was asked for.
  useEffect(() => {
    if (!pending.current || !current || isFetching) return;
    pending.current = false;
    showLater(current);
  }, [current, isFetching]);
  const total = ready?.total ?? 0;
  return {
    wanted,
    set: (change) => {
      setWanted((now) => ({ ...now, ...change }));
      setAt(-1);
      pending.current = false;
      setOpen(true);
    },
    open: open && wanted.text !== "",
    setOpen,
    total,
    at,
    go: (to) => {
      if (!ready) {
        setAt(Math.max(to, 0));
        pending.current = true;
        return;
      }
      if (total === 0) return;
      const next = ((to % total) + total) % total;
      setAt(next);
      const known = ready.events[next - ready.first];
      if (known) show(known);
      else pending.current = true;
    },
    events: ready?.events ?? NONE,
    first: ready?.first ?? Math.floor(Math.max(at, 0) / PAGE) * PAGE,
    perPart: ready?.per_part ?? NO_PARTS,
    loading: isFetching,
    problem: data?.error?.what ?? error?.message ?? "",
  };
}
