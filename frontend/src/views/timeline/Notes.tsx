import { Button, CloseButton, TextInput } from "@mantine/core";
import { useState } from "react";
import { time } from "../../base/format";
import { LONGEST_NOTE, type Note } from "../../base/notes";
import { toPixel, type Viewport } from "../../base/viewport";
import { HEAD_PX } from "../../canvas/scene";
import type { Notes } from "./useNotes";

interface PinsProps {
  readonly notes: Notes;
  readonly view: Viewport;
  readonly width: number;
}

/** The notes over the lanes, each at its moment. */
export function NotePins({ notes, view, width }: PinsProps) {
  return notes.all
    .filter(({ at_us }) => at_us >= view.start_us && at_us <= view.end_us)
    .map((note) => {
      const left = toPixel(view, note.at_us, width);
      return (
        <div
          key={`${note.at_us} ${note.text}`}
          className="gd-note"
          data-left={left > width / 2 || undefined}
          style={{ left, top: HEAD_PX }}
        >
          <button
            type="button"
            title={note.text}
            aria-label={`Note at ${time(note.at_us)}: ${note.text}`}
            onClick={() => notes.edit(note)}
          >
            {note.text}
          </button>
        </div>
      );
    });
}

/** Write a note, or change or delete one. */
export function NoteForm({ note, notes: { save, close } }: { note: Note; notes: Notes }) {
  const [text, setText] = useState(note.text);
  return (
    <form
      className="gd-note-form"
      aria-label="Note"
      onSubmit={(event) => {
        event.preventDefault();
        save(text);
      }}
    >
      <span>Note at {time(note.at_us)}</span>
      <TextInput
        size="xs"
        aria-label="Text of the note"
        placeholder="Links and HTML files of this page will have it"
        maxLength={LONGEST_NOTE}
        autoFocus
        value={text}
        onChange={(event) => setText(event.currentTarget.value)}
      />
      <Button size="compact-xs" type="submit" disabled={!text.trim()}>
        {note.text ? "Save" : "Pin"}
      </Button>
      {note.text && (
        <Button size="compact-xs" variant="default" onClick={() => save("")}>
          Delete
        </Button>
      )}
      <CloseButton size="sm" aria-label="Close the note" onClick={close} />
    </form>
  );
}
