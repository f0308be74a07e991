import { fireEvent, screen, within } from "@testing-library/react";
import { expect, it, vi } from "vitest";
import { renderPart } from "../page.testdata";
import { ExplainButton } from "./ExplainButton";
import { RulePanel } from "./RulePanel";

function explain(status: number, answer: object): ReturnType<typeof vi.fn> {
  const fetched = vi.fn(() => Promise.resolve(new Response(JSON.stringify(answer), { status })));
  vi.stubGlobal("fetch", fetched);
  renderPart(
    <>
      <ExplainButton rule="GD101" />
      <RulePanel />
    </>,
  );
  fireEvent.click(screen.getByRole("button", { name: "GD101 · Explain" }));
  return fetched;
}

async function page(markdown: string): Promise<HTMLElement> {
  explain(200, { id: "GD101", name: "input_pipeline", title: "Waiting for data", markdown });
  await screen.findByText("The end");
  return screen.getByRole("dialog", { name: "Rule GD101" });
}

it("shows the page of the rule with its headings, lists, tables and code", async () => {
  const dialog = await page(
    "# GD101: waiting\n\n## Fix\n\n1. Use `workers`.\n2. *Pin* memory.\n\n" +
      "| task | frames |\n| --- | --- |\n| logging | `tqdm` |\n\n```python\nx = 1 < 2\n```\n\nThe end",
  );
  const shown = within(dialog);
  expect(shown.getAllByRole("heading").map(({ tagName, textContent }) => [tagName, textContent])).toEqual([
    ["H2", "GD101: waiting"],
    ["H3", "Fix"],
  ]);
  expect(shown.getAllByRole("listitem").map(({ textContent }) => textContent)).toEqual([
    "Use workers.",
    "Pin memory.",
  ]);
  expect(shown.getByRole("cell", { name: "tqdm" })).toBeTruthy();
  expect(shown.getByText("x = 1 < 2")).toBeTruthy();
});

it("shows markup and unsafe links as text", async () => {
  const dialog = await page(
    "<script>alert(1)</script>\n\nAn <img src=x onerror=alert(2)> image.\n\n" +
      "[run](javascript:alert(3)) [plain](http://example.com) [docs](https://pytorch.org/docs)\n\n" +
      "[by reference][1] <javascript:alert(4)>\n\n[1]: javascript:alert(5)\n\nThe end",
  );
  expect(dialog.querySelector("script, img")).toBeNull();
  expect(dialog.textContent).toContain("<script>alert(1)</script>");
  expect(dialog.textContent).toContain("<img src=x onerror=alert(2)>");
  const links = within(dialog).getAllByRole<HTMLAnchorElement>("link");
  expect(links.map(({ href, target, rel }) => [href, target, rel])).toEqual([
    ["https://pytorch.org/docs", "_blank", "noopener noreferrer"],
  ]);
  expect(within(dialog).getByText(/run plain/)).toBeTruthy();
});

it("closes, and loads a page only once", async () => {
  const fetched = explain(200, { markdown: "The end" });
  await screen.findByText("The end");
  fireEvent.click(screen.getByRole("button", { name: "Close" }));
  expect(screen.queryByRole("dialog")).toBeNull();
  fireEvent.click(screen.getByRole("button", { name: "GD101 · Explain" }));
  await screen.findByText("The end");
  expect(fetched.mock.calls).toEqual([["./rule?id=GD101", expect.anything()]]);
});

it("says why there is no page", async () => {
  explain(400, {});
  const alert = await screen.findByRole("alert");
  expect(alert.textContent).toContain("status 400");
});
