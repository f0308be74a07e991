import { expect, it } from "vitest";
import { functionFirst } from "./names";

it.each([
  ["torch/nn/modules/module.py(1501): _call_impl", "_call_impl  torch/nn/modules/module.py:1501"],
  ["<string>(1): <module>", "<module>  <string>:1"],
  ["nn.Module: Linear_3", "Linear_3  nn.Module"],
  ["void gemm(int, float)", "void gemm(int, float)"],
  ["aten::mm", "aten::mm"],
])("%s is shown as %s", (name, shown) => {
  expect(functionFirst(name)).toBe(shown);
});
