import { render, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { Counters } from "./Counters";

it("lists counters with their range of values, and says which have no times", () => {
  const clock = { name: "clock [MHz]", unit: "MHz", device: 0, samples: 3 };
  const reads = { name: "dram__bytes_read.sum", unit: "", device: -1, samples: 2 };
  const values = { least: 1200, mean: 1300.5, most: 1410 };
  render(
    <Counters
      counters={[
        { ...clock, ...values, timed: true },
        { ...reads, ...values, timed: false },
      ]}
    />,
  );
  const [, first, second] = screen.getAllByRole("row").map(({ textContent: text }) => text);
  expect(first).toBe("clock [MHz]GPU 031,200 MHz1,301 MHz1,410 MHz");
  expect(second).toContain("2 ranges, without times");
});

it("shows nothing without counters", () => {
  expect(render(<Counters counters={[]} />).container.firstChild).toBeNull();
});
