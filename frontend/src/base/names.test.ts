import { expect, it } from "vitest";
import { functionFirst, withoutArguments } from "./names";

it.each([
  ["torch/nn/modules/module.py(1501): _call_impl", "_call_impl  torch/nn/modules/module.py:1501"],
  ["<string>(1): <module>", "<module>  <string>:1"],
  ["nn.Module: Linear_3", "Linear_3  nn.Module"],
  ["void gemm(int, float)", "void gemm(int, float)"],
  ["aten::mm", "aten::mm"],
])("%s is shown as %s", (name, shown) => {
  expect(functionFirst(name)).toBe(shown);
});

it.each([
  ["void wgrad<float, 5, (int)3>(int, float const*, f<2>)", "wgrad<float, 5, (int)3>"],
  [
    "void at::copy<at::add(int)::{lambda(int)#1}>(at::Iterator&, {lambda(int)#1})",
    "at::copy<at::add(int)::{lambda(int)#1}>",
  ],
  ["Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"],
  ["volta_sgemm_64x64_nn", "volta_sgemm_64x64_nn"],
  ["unbalanced)", "unbalanced)"],
])("%s without arguments is %s", (name, shown) => {
  expect(withoutArguments(name)).toBe(shown);
});
