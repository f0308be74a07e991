import { expect, test } from "vitest";
import { rowsInSight, showRow } from "./rowSight";

test("rows in sight are those that the canvas touches", () => {
  const sight = { width: 100, height: 50, scroll: 0 };
  expect(rowsInSight(sight, 20, 10)).toEqual([0, 3]);
  expect(rowsInSight({ ...sight, scroll: 25 }, 20, 10)).toEqual([1, 4]);
  expect(rowsInSight({ ...sight, scroll: 160 }, 20, 10)).toEqual([8, 10]);
  expect(rowsInSight({ ...sight, scroll: -5 }, 20, 1)).toEqual([0, 1]);
});

test("a row out of sight is scrolled to, and one in sight is not", () => {
  const tops: (number | undefined)[] = [];
  const scrollTo = (to: ScrollToOptions) => tops.push(to.top);
  const box = { scrollTop: 40, clientHeight: 60, scrollTo } as unknown as HTMLDivElement;
  for (const row of [0, 2, 4, 5]) showRow(box, row, 20);
  expect(tops).toEqual([0, 60]);
  showRow(null, 3, 20);
});
