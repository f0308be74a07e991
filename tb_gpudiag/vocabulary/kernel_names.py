"""Kernel names: which family a kernel belongs to, what does its arithmetic, which collective it runs.

The tables of families and of arithmetic are in kernel_families.py. Names of copies say direction and
kind of memory (`Memcpy HtoD (Pageable -> Device)`), and names of some GPUs more than the compute capability.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tb_gpudiag.arrays import Bool, Int64, mask_of
from tb_gpudiag.vocabulary.kernel_families import (
    ALIGNMENT,
    AMD_ARCHITECTURE,
    BF16,
    FAMILIES,
    FP32_CORES,
    FP64,
    HALF,
    MATRIX_FAMILIES,
    NVIDIA_ARCHITECTURE,
    OPTIMIZER,
    SHORT_NUMBERS,
    TENSILE_FP32,
    TENSILE_MATRIX,
    TENSILE_UNALIGNED,
    TENSOR_CORES,
    TF32,
    Arithmetic,
    Family,
)
from tb_gpudiag.vocabulary.name_matcher import NameMatcher
from tb_gpudiag.vocabulary.patterns import LONGEST_MATCHED, any_of, lazy_re

# Types are far behind in names of CUTLASS's kernels. Longer names are cut when they are read.
_LONGEST = 8_192

# In front of what a kernel's name says that it does: anything but template arguments and parameters.
_OUTSIDE = r"^(\(anonymous namespace\)|[^<(])*"
# The same up to what is no letter.
_WORD = r"^((\(anonymous namespace\)|[^<(])*([^a-z<(]|\(anonymous namespace\)))?"
_REDUCES = r"(all_?reduce|reduce_?scatter|all_?gather|all_?to_?all|all2all|send_?recv)"
_FLAGS = re.I | re.S | re.A

# Kernels that communicate between GPUs: NCCL, RCCL, MSCCL, NVSHMEM, DeepEP, MoRI, pplx, Transformer Engine's
# user buffers, symmetric memory, and those of vLLM, SGLang, TensorRT-LLM, FlashInfer and AITER. Each row: a
# pattern, and one that must not be found. Names of Inductor's kernels list the operators around them.
# Where they are not given one, all are called "triton_".
_INDUCTOR = r"^triton_((poi|red|per|mix|for|tem)_|$)"
INDUCTOR = lazy_re(rf"{_INDUCTOR}.*", re.DOTALL)
"""A kernel that torch.compile wrote."""

_COMMUNICATES = tuple(
    (lazy_re(pattern, _FLAGS), lazy_re(but_not, _FLAGS) if but_not else None)
    for pattern, but_not in (
        (r"^(void )?(nccl|rccl|mscclpp|msccl|nvshmem|mori::|userbuffers_)", ""),
        (
            rf"{_OUTSIDE}(deep_ep|nvshmem|mscclpp|quickreduce::|pplx|(\b|_)ep::\w*(dispatch|combine|notify)|"
            r"symmetric_memory::|moe_?comm|moe_?a2a|(hybrid_ep|mori)::|EpDispatch|EpCombine|cross_device_reduce)|"
            rf"{_WORD}(internode|intranode)",
            _INDUCTOR,
        ),
        (
            rf"{_OUTSIDE}({_REDUCES}|ulysses|(\b|_)ring_(send|recv|shift|exchange|p2p|comm))",
            rf"{_INDUCTOR}|{_OUTSIDE}((block|warp)_?{_REDUCES}|gemm|matmul|attn|attention|flash_?(fwd|bwd|mla))",
        ),
    )
)

_COLLECTIVE_KIND = lazy_re(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|send_?recv|broadcast|cross_device_reduce|"
    r"dispatch|combine|ulysses",
    re.I,
)
_REDUCE = lazy_re(r"(?:^|[^a-z])(reduce)_", re.I)

# Kernels of a backward pass or an optimizer.
TRAINING_KERNEL = any_of(
    r".*(backward|_bwd|bwd_|wgrad|FusedSgd).*", r".*adamw?([^a-z].*)?", flags=re.I | re.S
)

# BatchNorm in training mode: kernels that compute the statistics of a batch.
BATCH_STATISTICS = any_of(
    r".*(bn_fw_tr|batchnorm_fwtr|batch_norm_collect_statistics|(BatchNorm|BN)FwdTrain).*", flags=re.S
)

# cuDNN's changes of layout, around convolutions of channels-first tensors. Those of other libraries say less:
# whether MIOpen needs none with channels last depends on its settings.
CHANNELS_FIRST = any_of(r".*cudnn.*(nchwToNhwc|nhwcToNchw).*", flags=re.S)

TF32_ROUNDING = any_of(
    r".*cudnn.*convertTensor_kernel<float, float, float, (\(cudnnKernelDataType_t\))?2>.*", flags=re.S
)
"""cuDNN's rounding of FP32 inputs to TF32, before a convolution. Its only size is a number of elements, so
that it changes no layout; where a layout is changed, the number 2 stands in the kernel that does that."""

# A library's own changes of layout, around its convolutions and matrix products.
LAYOUT_KERNEL = any_of(r".*(nchwToNhwc|nhwcToNchw|nchw2nhwc|nhwc2nchw|[Bb]atched_transpose).*", flags=re.S)

# Elements in one 16-byte load: tensor cores need rows whose length is a multiple of this.
_WIDE_HALF = 8
_WIDE_TF32 = 4

_FAMILIES = [
    (
        row.family,
        lazy_re(row.function, re.I | re.A),
        lazy_re(row.within, re.I | re.S | re.A),
        lazy_re(row.but_not, re.I | re.A) if row.but_not else None,
    )
    for row in FAMILIES
]
_BRACKET = lazy_re(r"[<>()]")
_HALF = lazy_re(HALF, re.I | re.A)
_BF16 = lazy_re(BF16, re.I | re.A)
_KEEPS_PRECISION = lazy_re(f"{SHORT_NUMBERS}|{OPTIMIZER}", re.I | re.A)
_TENSOR_CORES = lazy_re(TENSOR_CORES, re.I | re.A)
_TF32 = lazy_re(TF32, re.I | re.A)
_FP32_CORES = lazy_re(FP32_CORES, re.I | re.A)
_FP64 = lazy_re(FP64, re.I | re.A)
_ALIGNMENT = lazy_re(ALIGNMENT, re.A)
_AMD_ARCHITECTURE = lazy_re(AMD_ARCHITECTURE)
_NVIDIA_ARCHITECTURE = lazy_re(NVIDIA_ARCHITECTURE, re.I)
_TENSILE_UNALIGNED = lazy_re(TENSILE_UNALIGNED)
_SOFTMAX = lazy_re(r"softmax", re.I)
_VECTOR = lazy_re(r"gemv", re.I)
_SMALL_WEIGHTS = lazy_re(
    r"e4m3|e5m2|fp8|f8f|mxfp|nvfp4|f4f4|u?int[48][^0-9]|[su]8[su]8|i8816|imma|marlin|machete|awq|gptq|w\d+a\d+|"
    r"quant|scaled_(mm|gemm)|i4bf16|_[48]bit",
    re.I | re.A,
)
_LOSS = lazy_re(r"softmax.*loss", re.I | re.S)
_TENSILE_FP32 = lazy_re(TENSILE_FP32, re.I | re.A)
_TENSILE_MATRIX = lazy_re(TENSILE_MATRIX, re.A)


class KernelName(NamedTuple):
    """What a kernel's name says about it.

    arithmetic: of kernels that multiply matrices; FP64 of any kernel.
    unaligned: its rows have a length that tensor cores cannot load in whole 16 bytes.
    any_size: a kernel of Tensile's that takes sizes which are not multiples of 8. The sizes decide.
    tf32: it multiplies FP32 matrices on tensor cores, as TF32.
    vector: it multiplies a matrix by a vector, so that it reads each number once and waits for memory.
    small_weights: it multiplies numbers of 8 bits or fewer, as quantized weights are.
    shortens: mixed precision would halve the bytes that it moves, judging by the types in its name.
    """

    family: Family
    arithmetic: Arithmetic = Arithmetic.UNKNOWN
    unaligned: bool = False
    any_size: bool = False
    softmax: bool = False
    tf32: bool = False
    shortens: bool = False
    vector: bool = False
    small_weights: bool = False


_MOST_KEPT = 65_536
_read: dict[str, KernelName] = {}


def read_names(names: Sequence[str]) -> list[KernelName]:
    """Parse the names of kernels. Unknown names are OTHER and UNKNOWN."""
    unknown = list(dict.fromkeys(name for name in names if name not in _read))
    if len(_read) + len(unknown) > _MOST_KEPT:
        _read.clear()
        unknown = list(dict.fromkeys(names))
    if unknown:
        _read.update(zip(unknown, _parsed(unknown), strict=True))
    return [_read[name] for name in names]


def _parsed(names: list[str]) -> Iterator[KernelName]:
    whole, every = NameMatcher(names, _LONGEST), np.arange(len(names))
    family = _families(names, whole)
    alone = np.flatnonzero(family != Family.COLLECTIVE)
    matrix = np.flatnonzero(np.isin(family, MATRIX_FAMILIES))

    def mask(some: Int64, pattern: re.Pattern[str], but_not: re.Pattern[str] | None = None) -> Bool:
        return mask_of(whole.with_one(pattern, but_not, some), len(names))

    shortens = (family != Family.COLLECTIVE) & ~mask(alone, _KEEPS_PRECISION)
    softmax = mask(np.setdiff1d(every, matrix), _SOFTMAX, _LOSS)
    half, double = mask(matrix, _HALF), mask(alone, _FP64)
    tensor_cores = mask(matrix, _TENSOR_CORES)
    fp32_cores = mask(matrix, _FP32_CORES) | mask(matrix, _TENSILE_FP32, _TENSILE_MATRIX)
    on_fp32 = np.select(
        [mask(matrix, _BF16), half],
        [Arithmetic.BF16_ON_FP32_CORES, Arithmetic.HALF_ON_FP32_CORES],
        Arithmetic.FP32_CORES,
    )
    arithmetic = np.select(
        [double, tensor_cores, fp32_cores],
        [Arithmetic.FP64, Arithmetic.TENSOR_CORES, on_fp32],
        Arithmetic.UNKNOWN,
    )
    any_size = mask(matrix, _TENSILE_UNALIGNED)
    vector, small_weights = mask(matrix, _VECTOR), mask(matrix, _SMALL_WEIGHTS)
    tf32 = (arithmetic == Arithmetic.TENSOR_CORES) & mask(matrix, _TF32)
    for i, name in enumerate(names):
        unaligned = arithmetic[i] == Arithmetic.TENSOR_CORES and _is_unaligned(name, bool(half[i]))
        yield KernelName(
            Family(family[i]),
            Arithmetic(arithmetic[i]),
            unaligned,
            bool(any_size[i]),
            softmax=bool(softmax[i]),
            tf32=bool(tf32[i]),
            shortens=bool(shortens[i]),
            vector=bool(vector[i]),
            small_weights=bool(small_weights[i]),
        )


def _is_unaligned(name: str, half: bool) -> bool:
    alignment = _ALIGNMENT.search(name, 0, _LONGEST)
    return alignment is not None and int(alignment[1][:9]) < (_WIDE_HALF if half else _WIDE_TF32)


# A CUDA graph that Nsight Systems recorded as one event, with or without the graph's number.
WHOLE_GRAPH_NAME = "CUDA graph"
WHOLE_GRAPH = any_of(WHOLE_GRAPH_NAME + r"( \d+)?")


def communicates(names: Sequence[str]) -> Bool:
    """Mask of the kernels' names that communicate between GPUs, shape of `names`."""
    matcher = NameMatcher(names)
    found = np.zeros(len(names), np.bool_)
    for pattern, but_not in _COMMUNICATES:
        found[matcher.with_one(pattern, but_not, np.flatnonzero(~found))] = True
    return found


def _families(names: list[str], whole: NameMatcher) -> Int64:
    """Return the Family of each name: that of the first row which fits."""
    functions = NameMatcher([function_name(name) for name in names])
    family = np.where(communicates(names), Family.COLLECTIVE, Family.OTHER).astype(np.int64)
    left = np.flatnonzero(family == Family.OTHER)
    for of_row, in_function, within, but_not in _FAMILIES:
        fits = functions.with_one(in_function, but_not, left)
        fits = fits[whole.contains(within, fits)]
        family[fits] = of_row
        left = left[family[left] == Family.OTHER]
    return family


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


_CAPABILITIES = {"volta": (7, 0), "turing": (7, 5), "ampere": (8, 0), "hopper": (9, 0)}


def least_capability(names: Sequence[str]) -> tuple[int, int] | None:
    """Return the least compute capability of an NVIDIA GPU that runs kernels of these names; None if they do
    not show it."""
    # Most names show none, which takes `re` longest to find.
    some = np.flatnonzero(NameMatcher(names).contains(_NVIDIA_ARCHITECTURE, np.arange(len(names))))
    found = [_NVIDIA_ARCHITECTURE.search(names[i], 0, LONGEST_MATCHED) for i in some.tolist()]
    known = [_CAPABILITIES[m[1].lower()] if m[1] else divmod(int(m[2]), 10) for m in found if m is not None]
    return max(known, default=None)


def collective_kind(name: str) -> str:
    """Return the operation that a communication kernel's name contains, such as `AllReduce`; else the name of
    its function."""
    function = function_name(name)
    found = _COLLECTIVE_KIND.search(function, 0, LONGEST_MATCHED)
    if found:
        return found[0]
    found = _REDUCE.search(function, 0, LONGEST_MATCHED)
    return found[1] if found else function


WITHOUT_TENSOR_CORES = any_of(r"GTX 16\d\d", r"\bT(400|500|550|600|1000|1200)\b", r"Quadro T\d", r"\bMX\d")
"""Turing's smaller chips: their capability, 7.5, is that of chips with tensor cores."""

AMPERE = (8, 0)
"""The compute capability from which tensor cores take TF32 and bf16."""


TO_DEVICE = any_of(r"Memcpy (HtoD|[MH]2D).*", flags=re.S)
TO_HOST = any_of(r"Memcpy (DtoH|D2[MH]).*", flags=re.S)
ON_DEVICE = any_of(r"Memcpy D(to|2)D.*", r"CopyDeviceToDevice.*", flags=re.S)

# One side is pageable host memory. Only NVIDIA's traces say so.
PAGEABLE = any_of(r"Memcpy .*\((Pageable -> .*|.* -> Pageable)\)", flags=re.S)
