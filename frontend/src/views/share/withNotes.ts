import { notesText, type Note } from "../../base/notes";

/** The element of an HTML file that has its notes: see offline.tsx. */
const NOTES = "gpudiag-notes";

/** Return an HTML file of this page with notes in it. They stay text: only "<" could end their element. */
export function withNotes(html: string, notes: readonly Note[]): string {
  const text = notesText(notes).replaceAll("<", "\\u003c");
  const at = html.indexOf("<script");
  if (at < 0) throw new Error("This HTML file has no timeline for notes");
  return `${html.slice(0, at)}<script type="application/json" id="${NOTES}">${text}</script>\n${html.slice(at)}`;
}
