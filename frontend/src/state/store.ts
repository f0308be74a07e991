// The page's state: the selection, the visible time range, and the theme and visibility of the page.

import { create } from "zustand";
import type { Scheme } from "../base/vocabulary";
import type { Link, ViewName } from "../base/hash";
import type { Note } from "../base/notes";
import { aired, AROUND_US, type Viewport } from "../base/viewport";

export interface GapKey {
  readonly device: number;
  readonly gap: number;
}

/** An event on the timeline: its number, or where it is, until the server says which it is. */
export type EventKey =
  | number
  | {
      /** Index of the lane among the server's. */
      readonly lane: number;
      readonly depth: number;
      readonly start_us: number;
      /** The event before this time. */
      readonly previous?: 1;
    };

/** The table row whose places are marked on the timeline, and the index of the current place. */
export interface Shown {
  readonly row: string;
  readonly place: number;
}

export interface PageState {
  /** The open tab; null until the list of traces decides. */
  readonly tab: ViewName | null;
  /** The trace that comparisons start from. */
  readonly base: string | null;
  readonly trace: string | null;
  /** What the table of runs is filtered by. */
  readonly filter: string;
  /** The key of the expanded finding, from `findingKeys`. */
  readonly finding: string | null;
  /** The time range on the timeline; null is the whole trace. */
  readonly view: Viewport | null;
  /** A range that the user selected. */
  readonly selection: Viewport | null;
  /** Are call tree and tables of operators those of the selected range? */
  readonly within: boolean;
  readonly gap: GapKey | null;
  /** The event whose details are shown. */
  readonly event: EventKey | null;
  readonly shown: Shown | null;
  /** Notes of each trace, by its id. */
  readonly notes: ReadonlyMap<string, readonly Note[]>;
  /** The device that the memory view shows, as recorded; null is the first. */
  readonly memoryOf: number | null;
  /** The id of the rule whose page is open. */
  readonly explained: string | null;
  /** Whether the page goes to each newer recording of the worker. Opening another trace ends it. */
  readonly following: boolean;
  /** Traces whose analysis the user canceled. They are not requested until resumed. */
  readonly stopped: ReadonlySet<string>;
  readonly scheme: Scheme;
  /** False while another tab of TensorBoard is active. */
  readonly visible: boolean;

  readonly openTrace: (id: string | null) => void;
  /** Open the newest recording of a worker, and each that follows; null: stay. */
  readonly follow: (newest: string | null) => void;
  readonly openTab: (tab: ViewName, trace?: string) => void;
  readonly compare: (base: string, candidate: string) => void;
  readonly filterRuns: (filter: string) => void;
  readonly pinBase: (id: string | null) => void;
  readonly openLink: (link: Link) => void;
  readonly toggleFinding: (key: string) => void;
  readonly openFinding: (key: string) => void;
  readonly setView: (view: Viewport | null) => void;
  readonly setSelection: (selection: Viewport | null) => void;
  readonly setWithin: (within: boolean) => void;
  readonly setNotes: (trace: string, notes: readonly Note[]) => void;
  readonly openGap: (gap: GapKey | null) => void;
  readonly openEvent: (event: EventKey | null) => void;
  readonly show: (shown: Shown, range: Viewport, tab: ViewName) => void;
  readonly unmark: () => void;
  readonly showMemoryOf: (device: number) => void;
  readonly explain: (rule: string | null) => void;
  readonly stop: (id: string) => void;
  readonly resume: (id: string) => void;
}

/** State that belongs to one trace. Opening another trace resets it. */
const OF_TRACE = {
  finding: null,
  view: null,
  selection: null,
  within: false,
  gap: null,
  event: null,
  shown: null,
  memoryOf: null,
  explained: null,
  following: false,
} as const;

export const usePage = create<PageState>()((set) => ({
  tab: null,
  base: null,
  filter: "",
  trace: null,
  ...OF_TRACE,
  notes: new Map(),
  stopped: new Set(),
  scheme: "light",
  visible: true,

  openTrace: (trace) => set((now) => (now.trace === trace ? now : { trace, ...OF_TRACE })),
  follow: (trace) =>
    set((now) =>
      trace === null
        ? { following: false }
        : { ...(trace === now.trace ? {} : OF_TRACE), trace, following: true },
    ),
  openTab: (tab, trace) =>
    set((now) => (trace === undefined || trace === now.trace ? { tab } : { tab, trace, ...OF_TRACE })),
  compare: (base, candidate) => set({ tab: "compare", base, trace: candidate, ...OF_TRACE }),
  pinBase: (base) => set({ base }),
  filterRuns: (filter) => set({ filter }),
  openLink: (link) => set((now) => linked(now, link)),
  toggleFinding: (key) => set((now) => ({ finding: now.finding === key ? null : key })),
  openFinding: (finding) => set({ finding }),
  setView: (view) => set({ view }),
  setSelection: (selection) => set({ selection, within: false }),
  setWithin: (within) => set({ within }),
  setNotes: (trace, notes) => set((now) => ({ notes: new Map(now.notes).set(trace, notes) })),
  openGap: (gap) => set({ gap, event: null }),
  openEvent: (event) => set({ event, gap: null }),
  show: (shown, { start_us, end_us }, tab) => {
    set({
      tab,
      shown,
      view: aired({ start_us, end_us }, AROUND_US),
      gap: null,
      event: null,
      selection: null,
    });
  },
  unmark: () => set({ shown: null }),
  showMemoryOf: (memoryOf) => set({ tab: "memory", memoryOf }),
  explain: (explained) => set({ explained }),
  stop: (id) => set((now) => ({ stopped: new Set([...now.stopped, id]) })),
  resume: (id) => set((now) => ({ stopped: new Set([...now.stopped].filter((other) => other !== id)) })),
}));

/** The state that a link leads to. */
function linked(now: PageState, link: Link): Partial<PageState> {
  const trace = link.trace ?? now.trace;
  const { row, place } = link;
  return {
    ...(trace === now.trace ? {} : OF_TRACE),
    ...(trace !== null && link.notes ? { notes: new Map(now.notes).set(trace, link.notes) } : {}),
    ...{ trace, tab: link.view ?? now.tab, base: link.base ?? now.base, filter: link.filter ?? "" },
    view: range(link.start_us, link.end_us),
    selection: range(link.from_us, link.to_us),
    within: link.within === true,
    shown: row !== undefined && place !== undefined ? { row, place: place - 1 } : null,
    finding: link.finding ?? null,
    ...{ memoryOf: link.memory ?? null, gap: link.gap ?? null, event: link.event ?? null },
  };
}

function range(start_us: number | undefined, end_us: number | undefined): Viewport | null {
  return start_us !== undefined && end_us !== undefined ? { start_us, end_us } : null;
}

/** Return the part of the state that a link stores. */
export function linkOf(state: PageState): Link {
  const notes = state.notes.get(state.trace ?? "") ?? [];
  return {
    ...(state.tab === null ? {} : { view: state.tab }),
    ...(state.base === null ? {} : { base: state.base }),
    ...(state.trace === null ? {} : { trace: state.trace }),
    ...(state.finding === null ? {} : { finding: state.finding }),
    ...(state.filter === "" ? {} : { filter: state.filter }),
    ...(state.view ?? {}),
    ...(state.shown === null ? {} : { row: state.shown.row, place: state.shown.place + 1 }),
    ...(state.memoryOf === null ? {} : { memory: state.memoryOf }),
    ...(state.selection === null ? {} : { from_us: state.selection.start_us, to_us: state.selection.end_us }),
    ...(state.within ? { within: true } : {}),
    ...(state.gap === null ? {} : { gap: state.gap }),
    ...(notes.length > 0 ? { notes } : {}),
    ...(typeof state.event === "number" ? { event: state.event } : {}),
  };
}
