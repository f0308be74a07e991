import { cleanup, fireEvent, screen, within } from "@testing-library/react";
import { expect, it } from "vitest";
import { createQueryClient } from "../../state/queries";
import type { TraceEntry } from "../../wire/report";
import { renderPart } from "../page.testdata";
import { Share } from "./Share";

const entry: TraceEntry = {
  ...{ id: "1", run: "a", worker: "w", span: "", size_bytes: 1, modified_s: 1, error: undefined },
  ...{
    state: "ready",
    limiter: "unknown",
    sentence: "",
    writing: false,
    content: "c",
    kind: "trace",
    origin: "",
    of_rank: false,
  },
};

async function offered(recorder: string, withheld = ""): Promise<string> {
  const client = createQueryClient();
  client.setQueryData(["report", "1", "c"], { state: "ready", report: { trace: { recorder, withheld } } });
  renderPart(<Share entry={entry} />, client);
  fireEvent.click(screen.getByRole("button", { name: "Share" }));
  const menu = await screen.findByRole("menu");
  const few = within(menu).getAllByRole("menuitem").length;
  fireEvent.click(within(menu).getByRole("menuitem", { name: "More…" }));
  expect(within(menu).getAllByRole("menuitem").length).toBeGreaterThan(few);
  return menu.textContent;
}

it("offers to annotate a trace of torch", async () => {
  expect(await offered("torch")).toMatch(/Open in Perfetto.*One HTML file.*Annotated trace.*Wrong diagnosis/);
});

it("says that credentials of the trace are left out", async () => {
  expect(await offered("torch", "The trace has credentials, in 3 places.")).toMatch(
    /Download.*The trace has credentials, in 3 places\..*One HTML file/,
  );
  cleanup();
  expect(await offered("torch")).not.toContain("The trace has");
});

it.each(["nsys", "rocprof"])("offers no annotated copy of what %s recorded", async (recorder) => {
  const menu = await offered(recorder);
  expect(menu).toContain("One HTML file");
  expect(menu).not.toMatch(/Annotated|Wrong diagnosis|Perfetto/);
});
