// Notes at moments of a trace, as links and HTML files contain them.

export interface Note {
  readonly at_us: number;
  readonly text: string;
}

/** An address has room for so many, and for so many characters in each. */
export const MOST_NOTES = 20;
export const LONGEST_NOTE = 200;

export function notesText(notes: readonly Note[]): string {
  return JSON.stringify(notes.map(({ at_us, text }) => [Number(at_us.toFixed(3)), text]));
}

/** The notes in a text. Whatever is broken in it is left out. */
export function notesOf(text: string): readonly Note[] {
  let said: unknown;
  try {
    said = JSON.parse(text);
  } catch {
    return [];
  }
  return Array.isArray(said) ? said.slice(0, MOST_NOTES).flatMap(noteOf) : [];
}

function noteOf(said: unknown): readonly Note[] {
  const [at_us, text] = (Array.isArray(said) ? said : []) as readonly unknown[];
  if (typeof at_us !== "number" || typeof text !== "string" || text === "") return [];
  return [{ at_us, text: text.slice(0, LONGEST_NOTE) }];
}
