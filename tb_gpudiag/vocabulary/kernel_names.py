"""Kernel names: which family a kernel belongs to, what does its arithmetic, which collective it runs.

The tables of families and of arithmetic are in kernel_families.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from tb_gpudiag.vocabulary.kernel_families import (
    ALIGNMENT,
    AMD_ARCHITECTURE,
    FAMILIES,
    FP32_CORES,
    FP64,
    HALF,
    MATRIX_FAMILIES,
    OPTIMIZER,
    SHORT_NUMBERS,
    TENSILE_UNALIGNED,
    TENSOR_CORES,
    TF32,
    Arithmetic,
    Family,
)
from tb_gpudiag.vocabulary.patterns import LONGEST_MATCHED, any_of

# In front of what a kernel's name says that it does: anything but template arguments and parameters. Names of
# Inductor's kernels list the operators around them.
_OUTSIDE = r"(?:\(anonymous namespace\)|[^<(])*"
_BEFORE = r"(?!triton_(?:poi|red|per|mix|for|tem)_)" + _OUTSIDE
_COMPUTES = rf"(?!{_OUTSIDE}(?:gemm|matmul|attn|attention|flash_?(?:fwd|bwd|mla)))"

# Kernels that communicate between GPUs: NCCL, RCCL, MSCCL, NVSHMEM, DeepEP, MoRI, pplx, Transformer Engine's
# user buffers, symmetric memory, and those of vLLM, SGLang, TensorRT-LLM, FlashInfer and AITER.
COMMUNICATION_KERNEL = any_of(
    r"(void )?(nccl|rccl|mscclpp|msccl|nvshmem|mori::|userbuffers_).*",
    _BEFORE + r"(deep_ep|nvshmem|mscclpp|quickreduce::|pplx|(\b|_)ep::\w*(dispatch|combine|notify)).*",
    _BEFORE + r"(symmetric_memory::|moe_?comm|moe_?a2a|(hybrid_ep|mori)::|EpDispatch|EpCombine).*",
    _BEFORE + r"(?<![a-z])(internode|intranode)(_ll)?(\b|_|\d|(?=[A-Z])).*",
    _BEFORE + r"cross_device_reduce.*",
    _COMPUTES + _BEFORE + r"(?<!block)(?<!warp)(?<!block_)(?<!warp_)(all_?reduce|reduce_?scatter|all_?gather|"
    r"all_?to_?all|all2all|send_?recv).*",
    _COMPUTES + _BEFORE + r"(ulysses|(\b|_)ring_(send|recv|shift|exchange|p2p|comm)).*",
    flags=re.I | re.S,
)
_COLLECTIVE_KIND = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|send_?recv|broadcast|cross_device_reduce|"
    r"dispatch|combine|ulysses|(?<![a-z])reduce(?=_)",
    re.I,
)

# Kernels of a backward pass or an optimizer.
TRAINING_KERNEL = any_of(r".*(backward|_bwd|bwd_|wgrad|adamw?(?![a-z])|FusedSgd).*", flags=re.I | re.S)

# BatchNorm in training mode: kernels that compute the statistics of a batch.
BATCH_STATISTICS = any_of(
    r".*(bn_fw_tr|batchnorm_fwtr|batch_norm_collect_statistics|(BatchNorm|BN)FwdTrain).*", flags=re.S
)

# A library's own changes of layout, around its convolutions and matrix products.
LAYOUT_KERNEL = any_of(r".*(nchwToNhwc|nhwcToNchw|nchw2nhwc|nhwc2nchw|[Bb]atched_transpose).*", flags=re.S)

# Elements in one 16-byte load: tensor cores need rows whose length is a multiple of this.
_WIDE_HALF = 8
_WIDE_TF32 = 4

_FAMILIES = [
    (row.family, re.compile(row.function, re.I), re.compile(row.within, re.I | re.S)) for row in FAMILIES
]
_BRACKET = re.compile(r"[<>()]")
_HALF = re.compile(HALF, re.I)
_KEEPS_PRECISION = re.compile(f"{SHORT_NUMBERS}|{OPTIMIZER}", re.I)
_TENSOR_CORES = re.compile(TENSOR_CORES, re.I)
_TF32 = re.compile(TF32, re.I)
_FP32_CORES = re.compile(FP32_CORES, re.I)
_FP64 = re.compile(FP64, re.I)
_ALIGNMENT = re.compile(ALIGNMENT)
_AMD_ARCHITECTURE = re.compile(AMD_ARCHITECTURE)
_TENSILE_UNALIGNED = re.compile(TENSILE_UNALIGNED)
_SOFTMAX = re.compile(r"softmax(?!.*loss)", re.I | re.S)


class KernelName(NamedTuple):
    """What a kernel's name says about it.

    arithmetic: of kernels that multiply matrices; FP64 of any kernel.
    unaligned: its rows have a length that tensor cores cannot load in whole 16 bytes.
    any_size: a kernel of Tensile's that takes sizes which are not multiples of 8. The sizes decide.
    tf32: it multiplies FP32 matrices on tensor cores, as TF32.
    shortens: mixed precision would halve the bytes that it moves, judging by the types in its name.
    """

    family: Family
    arithmetic: Arithmetic = Arithmetic.UNKNOWN
    unaligned: bool = False
    any_size: bool = False
    softmax: bool = False
    tf32: bool = False
    shortens: bool = False


@lru_cache(maxsize=65_536)
def read_name(name: str) -> KernelName:
    """Parse a kernel's name. Unknown names are OTHER and UNKNOWN."""
    family = _family(name)
    shortens = family != Family.COLLECTIVE and _KEEPS_PRECISION.search(name) is None
    double = family != Family.COLLECTIVE and _FP64.search(name) is not None
    if family not in MATRIX_FAMILIES:
        arithmetic = Arithmetic.FP64 if double else Arithmetic.UNKNOWN
        softmax = _SOFTMAX.search(name) is not None
        return KernelName(family, arithmetic, softmax=softmax, shortens=shortens)
    half = _HALF.search(name) is not None
    if double:
        arithmetic = Arithmetic.FP64
    elif _TENSOR_CORES.search(name):
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
    any_size = _TENSILE_UNALIGNED.search(name) is not None
    tf32 = arithmetic == Arithmetic.TENSOR_CORES and _TF32.search(name) is not None
    return KernelName(family, arithmetic, unaligned, any_size, tf32=tf32, shortens=shortens)


# A CUDA graph that Nsight Systems recorded as one event, with or without the graph's number.
WHOLE_GRAPH_NAME = "CUDA graph"
WHOLE_GRAPH = any_of(WHOLE_GRAPH_NAME + r"( \d+)?")


def communicates(name: str) -> bool:
    """Return whether a kernel of this name communicates between GPUs."""
    return COMMUNICATION_KERNEL.fullmatch(name, 0, LONGEST_MATCHED) is not None


def _family(name: str) -> Family:
    if communicates(name):
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


def amd_architecture(names: Iterable[str]) -> str:
    """Return the architecture that a kernel's name contains, such as `gfx942`; "" if none does."""
    for name in names:
        found = _AMD_ARCHITECTURE.search(name)
        if found:
            return f"gfx{found[1]}"
    return ""


def collective_kind(name: str) -> str:
    """Return the operation that a communication kernel's name contains, such as `AllReduce`; else the name of
    its function."""
    function = function_name(name)
    found = _COLLECTIVE_KIND.search(function)
    return found[0] if found else function
