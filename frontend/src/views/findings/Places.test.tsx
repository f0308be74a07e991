import { render } from "@testing-library/react";
import { expect, it } from "vitest";
import { type Place, Place_LineKind } from "../../wire/report";
import { Places } from "./Places";

const PLACE: Place = {
  file: "transformers/image.py",
  line: 390,
  line_kind: Place_LineKind.DEFINITION,
  function: "resize",
  operator: "",
  us: 1000,
  bytes: 0,
  module: "",
  range: "load batch",
  caller: undefined,
  candidates: [],
};

it("names the function, where it is defined, what it is in, and who called it", () => {
  const caller = { ...PLACE, file: "train.py", line: 12, function: "main", range: "" };
  render(<Places places={[{ ...PLACE, caller }]} />);
  for (const text of [
    "resize",
    "transformers/image.py, defined at line 390",
    "range load batch",
    "called from main (train.py, defined at line 12)",
  ]) {
    expect(document.body.textContent).toContain(text);
  }
});

it("shows lines of the user's code as text, where the server has read them", () => {
  const candidates = [{ line: 14, text: "x = <b>resize</b>(x)" }];
  render(<Places places={[{ ...PLACE, caller: { ...PLACE, function: "main", candidates } }]} />);
  expect(document.body.textContent).toContain("probably");
  expect(document.body.textContent).toContain("line 14: x = <b>resize</b>(x)");
});
