import { fireEvent, render, screen } from "@testing-library/react";
import { beforeEach, describe, expect, it } from "vitest";
import { linkOf, usePage } from "../../state/store";
import type { RowPlaces } from "../../state/rowPlaces";
import { LinkedRow, ShowOnTimeline, RowPlacesProvider } from "./ShowOnTimeline";

const MM = {};
const ADD = {};
const NOWHERE = {};
const range = (start_us: number, end_us: number) => ({ start_us, end_us, device: 0 });
const known = new Map<object, RowPlaces>([
  [
    MM,
    {
      row: "launches.0",
      title: "aten::mm",
      ranges: [range(1000, 2000), range(5000, 5001), range(0, 9)],
      view: "timeline",
    },
  ],
  [ADD, { row: "launches.1", title: "aten::add", ranges: [range(300, 400)], view: "timeline" }],
]);

beforeEach(() => {
  render(
    <RowPlacesProvider value={known}>
      <table>
        <tbody>
          <LinkedRow of={MM}>
            <td>matrices</td>
          </LinkedRow>
          <LinkedRow of={ADD}>
            <td>sums</td>
          </LinkedRow>
          <LinkedRow of={NOWHERE}>
            <td>nowhere</td>
          </LinkedRow>
        </tbody>
      </table>
      <ShowOnTimeline of={MM} />
    </RowPlacesProvider>,
  );
});

const press = (name: string) => fireEvent.click(screen.getAllByRole("button", { name })[0] ?? document.body);
const at = () => usePage.getState().shown;
const view = () => usePage.getState().view;

describe("a row", () => {
  it("shows its first place with a margin, then the others, and the first again", () => {
    press("Show on the timeline: aten::mm");
    expect(at()).toEqual({ row: "launches.0", place: 0 });
    expect(view()).toEqual({ start_us: 750, end_us: 2250 });
    press("aten::mm: 1 of 3. Show the next place");
    expect(at()?.place).toBe(1);
    press("Next place");
    press("Next place");
    expect(at()?.place).toBe(0);
    press("Previous place");
    expect(at()?.place).toBe(2);
    expect(usePage.getState().tab).toBe("timeline");
  });

  it("shows a short range with enough context around it", () => {
    press("Show on the timeline: aten::mm");
    press("Next place");
    expect(view()).toEqual({ start_us: 4980, end_us: 5021 });
  });

  it("is highlighted, and shows its current place wherever it appears", () => {
    press("Show on the timeline: aten::mm");
    const marked = [...document.querySelectorAll("tr[data-shown]")].map((row) => row.textContent);
    expect(marked).toEqual(["matrices‹1 of 3›"]);
    expect(screen.getAllByText("1 of 3")).toHaveLength(2);
    press("Show on the timeline: aten::add");
    expect(screen.getByText("Shown")).toBeTruthy();
    expect(screen.queryByText("1 of 3")).toBeNull();
  });

  it("can be clicked anywhere, unless it has no place on the timeline", () => {
    fireEvent.click(screen.getByText("nowhere"));
    expect(at()).toBeNull();
    fireEvent.click(screen.getByText("sums"));
    expect(at()).toEqual({ row: "launches.1", place: 0 });
  });

  it("is stored in a link", () => {
    press("Show on the timeline: aten::mm");
    press("Next place");
    const link = linkOf(usePage.getState());
    usePage.setState(usePage.getInitialState());
    usePage.getState().openLink(link);
    expect(at()).toEqual({ row: "launches.0", place: 1 });
    expect(view()).toEqual({ start_us: 4980, end_us: 5021 });
  });
});
