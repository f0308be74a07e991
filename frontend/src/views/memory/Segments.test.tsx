import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { plain } from "../../base/format.testdata";
import type { DeviceMemory } from "../../wire/report";
import { renderPart } from "../page.testdata";
import { Segments } from "./Segments";

function shown(segments: DeviceMemory["segments"]): void {
  renderPart(<Segments memory={{ segments } as DeviceMemory} />);
}

it("shows how much of each segment is used", () => {
  const segment = { address: "0x7f00", bytes: 2 ** 20, used_bytes: 2 ** 18, largest_free_bytes: 2 ** 19 };
  shown([{ ...segment, blocks: 3, expandable: true }]);
  const cells = screen.getAllByRole("cell").map((cell) => plain(cell.textContent));
  expect(cells).toEqual(["0x7f00 expandable", "1 MiB", "25.0%", "512 KiB", "3"]);
});

it("shows nothing if there are no segments", () => {
  shown([]);
  expect(screen.queryByRole("table")).toBeNull();
});
