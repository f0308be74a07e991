import { expect, test } from "vitest";
import { csv } from "./csv";

test("fields with commas, quotes and line ends are quoted", () => {
  expect(csv(["name", "us"], [['a,"b"\n', 1.5]])).toBe('name,us\r\n"a,""b""\n",1.5\r\n');
});

test.each(["=1+1", "+1", "-1", "@x", "\tx"])("a text that a spreadsheet would run is escaped: %s", (text) => {
  expect(csv(["name"], [[text]])).toBe(`name\r\n'${text}\r\n`);
});

test("negative numbers stay numbers, unknown ones are empty", () => {
  expect(csv(["a", "b"], [[-1, NaN]])).toBe("a,b\r\n-1,\r\n");
});
