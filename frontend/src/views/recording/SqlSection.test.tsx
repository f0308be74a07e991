import { fireEvent, screen } from "@testing-library/react";
import { expect, it, vi } from "vitest";
import { SQL_QUESTIONS } from "../../base/vocabulary";
import { usePage } from "../../state/store";
import type { SqlState, TraceEntry } from "../../wire/report";
import { renderPart } from "../page.testdata";
import { SqlSection } from "./SqlSection";

const entry = { id: "p1", run: "r", worker: "w", span: "", kind: "trace", content: "1" } as TraceEntry;

/** Shows the section, and returns the queries that it sends. */
function shown(answer: Partial<SqlState>): string[] {
  const sent: string[] = [];
  vi.stubGlobal("fetch", (address: string) => {
    sent.push(new URLSearchParams(address.split("?")[1]).get("query") ?? "");
    return Promise.resolve(new Response(JSON.stringify(answer)));
  });
  usePage.setState(usePage.getInitialState());
  renderPart(<SqlSection entry={entry} />);
  return sent;
}

it("runs a question that was chosen, and shows cells as text", async () => {
  const sent = shown({
    ...{ state: "ready", rows: 2, note: "Only the first 2 rows are shown" },
    columns: [
      { name: "<i>line</i>", number: false, cells: ["<b>train.py:3</b>", ""] },
      { name: "ns", number: true, cells: ["9007199254740993", "10"] },
    ],
  });
  fireEvent.change(screen.getByRole("combobox", { name: "Question" }), { target: { value: "1" } });
  expect(sent).toEqual([]);
  fireEvent.click(screen.getByRole("button", { name: "Run" }));
  await screen.findByText("<b>train.py:3</b>");
  expect(screen.getByText("9007199254740993")).toBeTruthy();
  expect(screen.getByText("Only the first 2 rows are shown")).toBeTruthy();
  expect(sent).toEqual([SQL_QUESTIONS[1]?.query]);
});

it("runs a query of one's own by keyboard, and again after it failed", async () => {
  const error = { what: "DuckDB refuses the query", where: "", remedy: "" };
  const sent = shown({ state: "failed", error });
  const box = screen.getByRole("textbox", { name: "Query" });
  fireEvent.change(box, { target: { value: "SELECT nothing" } });
  fireEvent.keyDown(box, { key: "Enter" });
  fireEvent.keyDown(box, { key: "Enter", ctrlKey: true });
  await screen.findByText(/DuckDB refuses the query/);
  fireEvent.keyDown(box, { key: "Enter", metaKey: true });
  await vi.waitFor(() => expect(sent).toEqual(["SELECT nothing", "SELECT nothing"]));
});
