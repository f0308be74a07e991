import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { beforeEach, expect, it, vi } from "vitest";
import { usePage } from "../../state/store";
import { useKeys } from "./useKeys";

const help = vi.fn();

function Stage() {
  const bounds = { start_us: 0, end_us: 10_000 };
  const gaps = { longer: null, shorter: null };
  useKeys({ view: { start_us: 2000, end_us: 3000 }, bounds, selected: null, gaps, search: vi.fn(), help });
  return (
    <>
      <input aria-label="find" />
      <button type="button">other</button>
      <div className="gd-lanes" role="group" tabIndex={0} />
    </>
  );
}

beforeEach(() => {
  help.mockClear();
  render(<Stage />);
});

/** Press a key, and return whether the view changed and the browser's own action was stopped. */
function moves(element: Element, key: string, more: KeyboardEventInit = {}): boolean {
  usePage.setState({ view: null });
  const goesOn = fireEvent.keyDown(element, { key, ...more });
  const moved = usePage.getState().view !== null;
  expect(goesOn).toBe(!moved);
  return moved;
}

it("letters work on the whole page, arrows only on the lanes and where nothing has the focus", () => {
  const button = screen.getByRole("button");
  expect(moves(document.body, "d")).toBe(true);
  expect(moves(button, "d")).toBe(true);
  expect(moves(button, "ArrowRight")).toBe(false);
  expect(moves(screen.getByRole("group"), "ArrowRight")).toBe(true);
  expect(moves(document.body, "ArrowRight")).toBe(true);
});

it("no key works while one types, with Ctrl, or while the page is hidden", () => {
  expect(moves(screen.getByRole("textbox"), "d")).toBe(false);
  for (const modifier of ["ctrlKey", "metaKey", "altKey"])
    expect(moves(document.body, "d", { [modifier]: true })).toBe(false);
  usePage.setState({ visible: false });
  expect(moves(document.body, "d")).toBe(false);
});

it("no key works once the view is closed", () => {
  fireEvent.keyDown(document.body, { key: "?" });
  cleanup();
  fireEvent.keyDown(document.body, { key: "?" });
  expect(help).toHaveBeenCalledOnce();
});
