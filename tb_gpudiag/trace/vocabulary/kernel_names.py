"""Kernel names: which family a kernel belongs to, what does its arithmetic, which collective it runs.

The tables of families and of arithmetic are in kernel_families.py.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from tb_gpudiag.trace.vocabulary.kernel_families import (
    ALIGNMENT,
    FAMILIES,
    FP32_CORES,
    HALF,
    MATRIX_FAMILIES,
    TENSOR_CORES,
    Arithmetic,
    Family,
)
from tb_gpudiag.trace.vocabulary.patterns import LONGEST_MATCHED, any_of

# Kernels that communicate between GPUs: NCCL, RCCL, MSCCL++, NVSHMEM, and vLLM's and DeepEP's own.
COMMUNICATION_KERNEL = any_of(
    r"(nccl|rccl|mscclpp|nvshmem).*",
    r".*(\b|_)(all_?reduce|reduce_?scatter|all_?gather)_?kernel.*",
    r"(void )?vllm::cross_device_reduce_.*",
    r"(void )?deep_ep::.*",
    flags=re.I | re.S,
)
_COLLECTIVE_KIND = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|send_?recv|broadcast|cross_device_reduce|"
    r"dispatch|combine|(?<![a-z])reduce(?=_)",
    re.I,
)

# A library's own changes of layout, around its convolutions and matrix products.
LAYOUT_KERNEL = any_of(r".*(nchwToNhwc|nhwcToNchw|nchw2nhwc|nhwc2nchw|[Bb]atched_transpose).*", flags=re.S)

# Elements that one 16-byte load holds: tensor cores need every row to be a multiple of it.
_WIDE_HALF = 8
_WIDE_TF32 = 4

_FAMILIES = [
    (row.family, re.compile(row.function, re.I), re.compile(row.within, re.I | re.S)) for row in FAMILIES
]
_BRACKET = re.compile(r"[<>()]")
_HALF = re.compile(HALF, re.I)
_TENSOR_CORES = re.compile(TENSOR_CORES, re.I)
_FP32_CORES = re.compile(FP32_CORES, re.I)
_ALIGNMENT = re.compile(ALIGNMENT)
_SOFTMAX = re.compile(r"softmax(?!.*loss)", re.I | re.S)


class KernelName(NamedTuple):
    """What a kernel's name says about it.

    unaligned: its rows have a length that tensor cores cannot load in whole 16 bytes.
    """

    family: Family
    arithmetic: Arithmetic = Arithmetic.UNKNOWN
    unaligned: bool = False
    softmax: bool = False


@lru_cache(maxsize=65_536)
def read_name(name: str) -> KernelName:
    """Parse a kernel's name. Unknown names are OTHER and UNKNOWN."""
    family = _family(name)
    if family not in MATRIX_FAMILIES:
        return KernelName(family, softmax=_SOFTMAX.search(name) is not None)
    half = _HALF.search(name) is not None
    if _TENSOR_CORES.search(name):
        arithmetic = Arithmetic.TENSOR_CORES
    elif _FP32_CORES.search(name):
        arithmetic = Arithmetic.HALF_ON_FP32_CORES if half else Arithmetic.FP32_CORES
    else:
        arithmetic = Arithmetic.UNKNOWN
    alignment = _ALIGNMENT.search(name)
    wide = _WIDE_HALF if half else _WIDE_TF32
    unaligned = (
        arithmetic == Arithmetic.TENSOR_CORES and alignment is not None and int(alignment[1][:9]) < wide
    )
    return KernelName(family, arithmetic, unaligned)


def _family(name: str) -> Family:
    if COMMUNICATION_KERNEL.fullmatch(name, 0, LONGEST_MATCHED):
        return Family.COLLECTIVE
    function = function_name(name)[:LONGEST_MATCHED]
    for family, in_function, within in _FAMILIES:
        if in_function.search(function) and within.search(name):
            return family
    return Family.OTHER


def function_name(name: str) -> str:
    """Remove template arguments and parameters from a C++ signature: `void at::f<4, g(int)>(int)` becomes
    `void at::f`."""
    kept: list[str] = []
    opened: list[str] = []
    at = 0
    for found in _BRACKET.finditer(name):
        bracket = found[0]
        if not opened:
            kept.append(name[at : found.start()])
        if bracket in "<(":
            opened.append(bracket)
        elif opened and (bracket == ")") == (opened[-1] == "("):  # `a > b` inside parentheses closes nothing
            opened.pop()
        at = found.end()
    if not opened:
        kept.append(name[at:])
    return "".join(kept)


def collective_kind(name: str) -> str:
    """Return the operation that a communication kernel's name contains, such as `AllReduce`; else the name of
    its function."""
    function = function_name(name)
    found = _COLLECTIVE_KIND.search(function)
    return found[0] if found else function
