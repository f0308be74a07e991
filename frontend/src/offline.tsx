// The page inside one HTML file: `gpudiag diagnose TRACE --format html`. Everything it shows is in the file.

import { notesOf } from "./base/notes";
import { usePage } from "./state/store";
import { answerFrom } from "./wire/client";
import { embeddedSource, type Content } from "./wire/embedded";
import { render } from "./index";

const data = document.getElementById("gpudiag-data")?.textContent;
if (typeof DecompressionStream === "undefined") {
  document.body.append(
    "This browser is too old for this page. It needs Chrome 80, Firefox 113, Safari 16.4 or later.",
  );
} else if (data) {
  const content = JSON.parse(data) as Content;
  answerFrom(embeddedSource(content), content.events);
  const notes = notesOf(document.getElementById("gpudiag-notes")?.textContent ?? "");
  const [trace] = content.traces.traces;
  if (trace && notes.length > 0) usePage.getState().setNotes(trace.id, notes);
  render();
}
