import { fireEvent, screen } from "@testing-library/react";
import { expect, it, vi } from "vitest";
import type { DeviceMemory } from "../../wire/report";
import { renderPart } from "../page.testdata";
import { PeakOwners } from "./PeakOwners";

const LOG = {
  kind: "activation",
  operator: "aten::cat",
  module: "",
  bytes: 600,
  count: 3,
  largest_bytes: 200,
};
const BEFORE = { kind: "before", operator: "", module: "", bytes: 400, count: 0, largest_bytes: 0 };

function shown(peak_kinds: object[], peak_owners: object[]) {
  const onPick = vi.fn();
  const memory = { peak_allocated_bytes: 1000, peak_kinds, peak_owners } as unknown as DeviceMemory;
  renderPart(<PeakOwners memory={memory} picked={null} onPick={onPick} />);
  return onPick;
}

it("has a button only for owners that are known", () => {
  const kinds = [LOG, BEFORE].map(({ kind, bytes }) => ({ kind, bytes }));
  const onPick = shown(kinds, [LOG, BEFORE]);
  fireEvent.click(screen.getByRole("button"));
  expect(onPick.mock.calls).toEqual([[LOG]]);
  expect(screen.getByRole("note").getAttribute("aria-label")).toContain("Before recording");
});

it("says that nothing is known instead of showing a single unknown tile", () => {
  shown([{ kind: "unknown", bytes: 1000 }], []);
  expect(screen.getByText(/does not show what was allocated at its peak/)).toBeTruthy();
  expect(screen.queryByRole("list")).toBeNull();
});
