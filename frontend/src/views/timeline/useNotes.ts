import { useState } from "react";
import { MOST_NOTES, type Note } from "../../base/notes";
import { usePage } from "../../state/store";

const NONE: readonly Note[] = [];

export interface Notes {
  readonly all: readonly Note[];
  /** The one that is being written. */
  readonly open: Note | null;
  /** Null if there are too many. */
  readonly add: ((at_us: number) => void) | null;
  readonly edit: (note: Note) => void;
  readonly save: (text: string) => void;
  readonly close: () => void;
}

/** The notes of a trace. One is open at a time; an empty text deletes it. */
export function useNotes(trace: string): Notes {
  const all = usePage((page) => page.notes.get(trace)) ?? NONE;
  const [open, setOpen] = useState<Note | null>(null);
  return {
    all,
    open,
    add: all.length < MOST_NOTES ? (at_us) => setOpen({ at_us, text: "" }) : null,
    edit: setOpen,
    save: (text) => {
      if (!open) return;
      const others = all.filter((note) => note !== open);
      const kept = text.trim() ? [...others, { at_us: open.at_us, text: text.trim() }] : others;
      usePage.getState().setNotes(
        trace,
        kept.sort((a, b) => a.at_us - b.at_us),
      );
      setOpen(null);
    },
    close: () => setOpen(null),
  };
}
