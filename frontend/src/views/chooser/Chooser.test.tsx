import { act, fireEvent, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { usePage } from "../../state/store";
import type { TraceEntry } from "../../wire/report";
import { answerWith, renderPart } from "../page.testdata";
import { Chooser } from "./Chooser";

function recording(id: string, modified_s: number): TraceEntry {
  return {
    ...{
      id,
      run: "a",
      worker: "w",
      span: id,
      size_bytes: 1,
      modified_s,
      error: undefined,
      origin: "",
      of_rank: false,
    },
    ...{ state: "ready", limiter: "unknown", sentence: "", writing: false, content: id, kind: "trace" },
  };
}

const [first, second, third] = [1, 2, 3].map((at) => recording(String(at), at)) as [
  TraceEntry,
  TraceEntry,
  TraceEntry,
];

it("follows the newest recording until another one is opened", () => {
  answerWith({});
  usePage.getState().openTrace("1");
  const { unmount } = renderPart(<Chooser traces={[first, second]} entry={first} />);
  fireEvent.click(screen.getByRole("button", { name: "Follow the newest" }));
  expect(usePage.getState().trace).toBe("2");
  unmount();
  renderPart(<Chooser traces={[first, second, third]} entry={second} />);
  expect(usePage.getState().trace).toBe("3");
  act(() => usePage.getState().openTrace("1"));
  expect(usePage.getState()).toMatchObject({ trace: "1", following: false });
});
