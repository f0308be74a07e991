import { render } from "@testing-library/react";
import { expect, it } from "vitest";
import { Cut } from "./Cut";

it("has no empty part, at whose bottom the rest of the line would be aligned", () => {
  const { container } = render(<Cut text="data-bottleneck.py, defined at line 87" isPath />);
  expect([...container.querySelectorAll("span > span")].map((part) => part.textContent)).toEqual([
    "data-bottleneck.py, defined at line 87",
  ]);
});

it("keeps a file's name, and cuts its folders", () => {
  const { container } = render(<Cut text="a/folder/with/a/long/path/train.py:12" isPath />);
  expect([...container.querySelectorAll("span > span")].map((part) => part.textContent)).toEqual([
    "a/folder/with/a/long/path/",
    "train.py:12",
  ]);
});
