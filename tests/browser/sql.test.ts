// SQL over the tables of a trace, in a real TensorBoard.

import { expect, it } from "vitest";
import { Session } from "./session";

const RUN = "input_pipeline";

const session = new Session();

it("answers a question by keyboard, and says why a query is refused", async () => {
  await session.reportOf(RUN);
  const frame = await session.open(RUN, "recording");
  const section = frame.getByRole("region", { name: "SQL" });
  await section.getByRole("combobox", { name: "Question" }).selectOption({ index: 0 });
  const box = section.getByRole("textbox", { name: "Query" });
  await box.press("Control+Enter");
  const rows = section.getByRole("table", { name: "Rows of the query" }).locator("tbody tr");
  await rows.first().waitFor();
  expect(await rows.first().innerText()).toContain("input");
  await box.fill("SELECT * FROM read_text('/etc/passwd')");
  await box.press("Control+Enter");
  await section.getByText(/file system operations are disabled/).waitFor();
});
