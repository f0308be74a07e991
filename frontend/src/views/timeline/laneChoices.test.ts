import { expect, it } from "vitest";
import { NO_CHOICES, rowsOf } from "../../canvas/rows";
import { sliceOf } from "../../canvas/slice";
import { timelineOf } from "../../canvas/timeline.testdata";
import { only, revealed, toggled } from "./laneChoices";

const nested = (name: string) =>
  [
    [0, 10, name],
    [0, 5, name, { depth: 1 }],
  ] as const;
const slice = sliceOf(timelineOf({ first: nested("a"), second: nested("b"), third: nested("c") }));
const keys = [...slice.lanes.keys()];
const [, second = "", third = ""] = keys;
const shown = (choices: typeof NO_CHOICES) => rowsOf(slice, new Map(), choices).rows;
const titles = (choices: typeof NO_CHOICES) => shown(choices).map(({ title }) => title);

it("a lane is pinned to the top, hidden or folded, and back again by the same", () => {
  const pinned = toggled(NO_CHOICES, "pinned", third);
  expect(titles(pinned)).toEqual(["third", "first", "second"]);
  expect(titles(toggled(pinned, "pinned", third))).toEqual(["first", "second", "third"]);
  const hidden = toggled(NO_CHOICES, "hidden", second);
  expect(titles(hidden)).toEqual(["first", "third"]);
  expect(titles(toggled(hidden, "hidden", second))).toEqual(["first", "second", "third"]);
  const folded = shown(toggled(NO_CHOICES, "folded", second)).map((row) => row.folded);
  expect(folded).toEqual([false, true, false]);
});

it("all lanes but one are hidden, whatever was hidden before", () => {
  const hidden = toggled(NO_CHOICES, "hidden", second);
  expect(titles(only(hidden, second, keys))).toEqual(["second"]);
});

it("a hidden and folded lane is shown with all depths to go to an event there, and others stay as they are", () => {
  let choices = toggled(NO_CHOICES, "hidden", second);
  choices = toggled(toggled(choices, "folded", second), "hidden", third);
  const rows = shown(revealed(choices, second));
  expect(rows.map(({ title, folded }) => [title, folded])).toEqual([
    ["first", false],
    ["second", false],
  ]);
});

it("nothing is laid out again for a lane that is shown already", () => {
  const choices = toggled(NO_CHOICES, "hidden", third);
  expect(revealed(choices, second)).toBe(choices);
});
