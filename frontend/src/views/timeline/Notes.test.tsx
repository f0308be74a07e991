import { MantineProvider } from "@mantine/core";
import { fireEvent, render, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { notesOf } from "../../base/notes";
import { linkOf, usePage } from "../../state/store";
import { withNotes } from "../share/withNotes";
import { NoteForm, NotePins } from "./Notes";
import { useNotes } from "./useNotes";

function Page() {
  const notes = useNotes("t");
  return (
    <MantineProvider env="test">
      <button type="button" onClick={() => notes.add?.(250)}>
        add
      </button>
      {notes.open && <NoteForm note={notes.open} notes={notes} />}
      <NotePins notes={notes} view={{ start_us: 0, end_us: 1000 }} width={100} />
    </MantineProvider>
  );
}

function write(text: string): void {
  fireEvent.change(screen.getByLabelText("Text of the note"), { target: { value: text } });
  fireEvent.submit(screen.getByRole("form", { name: "Note" }));
}

it("a note is pinned at its moment, changed and deleted, and is in the link of its trace", () => {
  render(<Page />);
  fireEvent.click(screen.getByText("add"));
  write("here it waits");
  const pin = () => screen.queryByRole("button", { name: /^Note at 250.µs/ });
  expect(pin()?.textContent).toBe("here it waits");
  usePage.setState({ trace: "t" });
  expect(linkOf(usePage.getState()).notes).toEqual([{ at_us: 250, text: "here it waits" }]);
  usePage.setState({ trace: "other" });
  expect(linkOf(usePage.getState()).notes).toBeUndefined();
  fireEvent.click(screen.getByText("here it waits"));
  write("why?");
  expect(pin()?.textContent).toBe("why?");
  fireEvent.click(screen.getByText("why?"));
  fireEvent.click(screen.getByText("Delete"));
  expect(pin()).toBeNull();
});

it("a link without notes, as one that Back returns to, keeps those of the trace", () => {
  const { openLink, setNotes } = usePage.getState();
  setNotes("t", [{ at_us: 1, text: "a" }]);
  openLink({ trace: "t" });
  expect(linkOf(usePage.getState()).notes).toHaveLength(1);
  openLink({ trace: "t", notes: [{ at_us: 2, text: "b" }] });
  expect(linkOf(usePage.getState()).notes).toEqual([{ at_us: 2, text: "b" }]);
});

it("an HTML file has the notes as text, whatever they say", () => {
  const hostile = [{ at_us: 1, text: "</script><script>alert(1)</script>" }];
  const html = withNotes('<p>x</p><script id="gpudiag-data">{}</script>', hostile);
  const page = new DOMParser().parseFromString(html, "text/html");
  expect([...page.querySelectorAll("script")].map(({ id }) => id)).toEqual(["gpudiag-notes", "gpudiag-data"]);
  expect(notesOf(page.getElementById("gpudiag-notes")?.textContent ?? "")).toEqual(hostile);
});
