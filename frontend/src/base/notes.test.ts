import { expect, it } from "vitest";
import { readHash, writeHash } from "./hash";
import { LONGEST_NOTE, MOST_NOTES, notesOf, notesText } from "./notes";

const NOTES = [
  { at_us: 12.5, text: "why = 100% & #1?" },
  { at_us: 0, text: "„später“ </script>" },
];

it("come back from a link as they were written, other parts of which stay", () => {
  const hash = writeHash("#gpudiag&p.other.key=1", { trace: "x", notes: NOTES });
  expect(readHash(hash)).toEqual({ trace: "x", notes: NOTES });
  expect(hash.split("&").every((token) => token.split("=").length <= 2)).toBe(true);
});

it("a broken or hostile text gives what makes sense in it, and no more than fits", () => {
  expect(notesOf("[[1,")).toEqual([]);
  expect(notesOf('{"length": 9}')).toEqual([]);
  expect(notesOf('[[1, "a"], ["1", "b"], [2], null, [3, ""], [4, {"x": 1}]]')).toEqual([
    { at_us: 1, text: "a" },
  ]);
  const many = notesOf(JSON.stringify(Array.from({ length: 999 }, () => [1, "x".repeat(9999)])));
  expect(many).toHaveLength(MOST_NOTES);
  expect(many[0]?.text).toHaveLength(LONGEST_NOTE);
  expect(notesOf(notesText(NOTES))).toEqual(NOTES);
});
