import { expect, test } from "vitest";
import { csv, titleOf, valueOf } from "./csv";

test("fields with commas, quotes and line ends are quoted", () => {
  expect(csv(["name", "us"], [['a,"b"\n', 1.5]])).toBe('name,us\r\n"a,""b""\n",1.5\r\n');
});

test.each(["=1+1", "+1", "-1", "@x", "\tx"])("a text that a spreadsheet would run is escaped: %s", (text) => {
  expect(csv(["name"], [[text]])).toBe(`name\r\n'${text}\r\n`);
});

test("negative numbers stay numbers, unknown ones are empty", () => {
  expect(csv(["a", "b"], [[-1, NaN]])).toBe("a,b\r\n-1,\r\n");
});

test("titles say the unit, and dates are ISO 8601", () => {
  expect(titleOf({ id: "a", title: "Step", unit: "µs" })).toBe("Step (µs)");
  expect(titleOf({ id: "a", title: "", fileTitle: "Not computing", unit: "share" })).toBe(
    "Not computing (share)",
  );
  expect(titleOf({ id: "date", title: "Recorded", unit: "date" })).toBe("Recorded (UTC)");
  expect(titleOf({ id: "name", title: "" })).toBe("name");
  expect(valueOf(1_700_000_000.5, "date")).toBe("2023-11-14T22:13:20.500Z");
  expect(valueOf(NaN, "date")).toBeNaN();
  expect(valueOf(1.5, "µs")).toBe(1.5);
});
