"""Tables of kernel names: the family of a kernel, and what does its arithmetic.

Names of PyTorch's own kernels, of Inductor and Triton, cuBLAS, cuDNN, CUTLASS, DeepGEMM, FlashAttention, cub,
FBGEMM, vLLM and TensorRT-LLM, and on AMD of rocBLAS and hipBLASLt (Tensile), MIOpen and Composable Kernel.
Read off recorded traces, from Volta to Blackwell and MI300.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import NamedTuple

from tb_gpudiag.vocabulary.patterns import not_after, not_before, rows_of
from tb_gpudiag.vocabulary.recorded import LabeledEnum


class Family(LabeledEnum):
    """What a kernel does, in the order in which families are shown."""

    GEMM = 0  # matrix times matrix or vector
    CONVOLUTION = 1
    ATTENTION = 2  # fused attention
    ELEMENTWISE = 3  # each output from its own inputs: pointwise math, casts, dropout, optimizers
    REDUCTION = 4  # sums, maxima, scans, pooling, losses
    NORMALIZATION = 5  # layer, batch, group and RMS norm
    SOFTMAX = 6
    COPY = 7  # only moves data: copies, memsets, transposes, concatenation, look-ups by index
    COLLECTIVE = 8  # between GPUs
    OTHER = 9


MATRIX_FAMILIES = (Family.GEMM, Family.CONVOLUTION, Family.ATTENTION)
"""Families whose arithmetic is worth tensor cores."""


class FamilyRow(NamedTuple):
    """A kernel is of this family if `function` is found in its name without template arguments and
    parameters, `but_not` is not, and `within`, where given, is found in the whole name."""

    family: Family
    function: str
    within: str = ""
    but_not: str = ""


_GENERIC = r"elementwise_kernel|multi_tensor_apply_kernel|pointwise_kernel|\bindex_kernel"
"""PyTorch's launchers of any function. Their template arguments say what they do."""

_LOSS = r"softmax\w*loss"
"""What computes a loss from a softmax is no softmax."""

_CUTLASS = r"cutlass\w*::(kernel2?|device_kernel)$|^device_kernel$"
"""CUTLASS's launchers, whose template arguments also say what they do."""

_NAMED = {"@generic": _GENERIC, "@loss": _LOSS, "@cutlass": _CUTLASS}


def _pattern(text: str) -> str:
    text = re.sub(r"\(\?!(\w+)\)", lambda found: not_before(found[1]), _NAMED.get(text, text))
    return re.sub(r"\(\?<!(\w+)\)", lambda found: not_after(found[1]), text)


FAMILIES = [
    FamilyRow(Family[family.upper()], *map(_pattern, patterns))
    for family, *patterns in rows_of("kernel_families.tsv")
]
"""The first row that fits decides, upper and lower case alike. COMMUNICATION_KERNEL comes before all of them
(see kernel_names.py)."""


class Arithmetic(IntEnum):
    """What does the arithmetic of a matmul kernel."""

    UNKNOWN = 0  # the name does not say, or the kernel multiplies no matrices
    TENSOR_CORES = 1  # AMD: matrix cores
    FP32_CORES = 2  # 32-bit numbers on the ordinary cores
    HALF_ON_FP32_CORES = 3  # 16-bit numbers that could not use the tensor cores
    FP64 = 4  # 64-bit numbers, on any unit
    BF16_ON_FP32_CORES = 5  # the same for bf16, which tensor cores take from Ampere on


BF16 = r"bf(loat)?16"
HALF = rf"{BF16}|fp16|f16|half|e4m3|e5m2|[sh]884|h1688|h16816"
"""Names of kernels with inputs of 16 bits or fewer."""

SHORT_NUMBERS = (
    r"bfloat16|c10::(half|float8)|__half|(bf|fp|f)16|e\dm\d|fp8|mxfp|(^|_)h(gemm|884|1688|16816)|"
    r"(^|_)(half|h)(_|$)|^Cijk_[a-z]+_[a-z]+_[BHF]"
)
"""Names of kernels of any family whose inputs or outputs have 16 bits or fewer."""

OPTIMIZER = r"multi_tensor_apply|adam|lamb|sgd|adagrad|optimizer"
"""Names of kernels that update weights: mixed precision leaves them in FP32."""

TENSOR_CORES = (
    r"tensorop|wmma|[hiqw]mma_|utcmma|nvjet|tensor\d+x\d+x\d+|tf32|"
    r"(^|[^a-z0-9])[shid](884|1688|16816|16832|161616)[a-z_]|"
    r"flash_(fwd|bwd)|FlashAttn|flash_(fprop|bprop)|fmhaSm\d|fmha_cutlass[FB]_(bf16|f16)|"
    r"xmma_\w*gemm_(bf16|f16|e4m3|e5m2|i8|s8)|cutlass3x_sm(90|1\d\d)|MainloopSm\d|GMMA|UMMA|deep_gemm|^bmm_\w*sm1\d\d|warpgroupsize|"
    r"(^|[ :])marlin\w*(<|$)|machete::|"
    r"fp8_?(gemm|matmul|scaled|block)|(gemm|mm)_?(fp8|a8w8|w8a8)|w8a8_\w*fp8|mxfp[48]|nvfp4|block_?scale[d_]|f8f8bf16|f4f4bf16|"
    r"xdl|gtcx|_MI\d+x\d+|"
    r"(^|_)matmul\w*_(bf16|fp16|fp8|mxfp4)"
)
"""Names of kernels that run on tensor cores, or on AMD's matrix cores."""

TF32 = r"tf32|tensorop_s1688|nvjet_(sm\d+_)?sss_"
"""Names of kernels among these that round FP32 to TF32. Triton's do not say."""

FP32_CORES = (
    rf"(^|[^a-z])sgemm{not_before('_bf16')}|simt_\w*gemm|scudnn|ffma|convolve_sgemm|"
    r"(wgrad_alg0|dgrad|wgrad)_engine<float|fmha_cutlass[FB]_f32_\w*sm(50|70|75)|winograd\w*<float"
)
"""Names of kernels that multiply matrices on the ordinary FP32 cores."""

TENSILE_FP32 = r"^Cijk_[a-z]+_[a-z]+_S_?B_"
TENSILE_MATRIX = r"_MI\d"
"""Tensile's kernels for FP32, and those of them that use matrix cores after all."""

FP64 = (
    r"(^|[^a-z])d(gemm|gemv|symm|syrk|trsm)|(^|[^a-z0-9])(d884|f64f64)|"
    rf"{not_after('optional')}<double\b|lambda\(double\b|"
    r"(gemv|gemm|dot)\w*<int, int, double\b|^Cijk_[a-z]+_[a-z]+_D_?B_|_fp?64(_|$)"
)
"""Names of kernels that compute with 64-bit numbers. Scalars of optimizers are `double` in kernels for FP32
too, so the types of a function's later arguments say nothing."""

TENSILE_UNALIGNED = r"^Cijk_.*_(ASEM|AF[01]EM)[124](_|$)"
"""Tensile writes into the name which number divides the sizes that the kernel takes."""

GRID_IN_THREADS = (
    r"(Cijk_|igemm_\w*gtcx|miopen|MIOpen|batched_transpose_\d|transpose_[CN][CHNW]{3}|SubTensorOp|Op\d?Tensor|"
    r"Im2d2Col|Col2Im|naive_conv|gcnAsm)"
)
"""Beginnings of the names of Tensile's and MIOpen's kernels. `hipExtModuleLaunchKernel` launches them: it
takes the grid in threads, not in blocks, and ROCm's recorders write what it takes."""

AMD_ARCHITECTURE = r"(?:_ISA|gfx)(90a|942|950)([^0-9a-z]|$)"
"""Tensile and others write the architecture into the names of kernels."""

NVIDIA_ARCHITECTURE = (
    r"(?:^|[^a-z])(volta|turing|ampere|hopper)_|(?:^|[^a-z])sm_?(7\d|8\d|9\d|1[0-2]\d)(?:[^0-9]|$)"
)
"""Of cuBLAS, cuDNN and CUTLASS: the first architecture that a kernel was built for. Later ones may run it."""

ALIGNMENT = r"_align(\d+)([_:>(]|$)"
"""CUTLASS writes into the name how many elements it may load at once: this number divides every row."""
