"""Operators whose least operations and bytes follow from their inputs' shapes, by what they compute.

Positions are places in the list of inputs, as in PyTorch's native_functions.yaml.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from tb_gpudiag.vocabulary.operators import BATCH_NORM, MATMUL_FACTORS, TO_COPY
from tb_gpudiag.vocabulary.patterns import LONGEST_MATCHED, any_of, lazy_re

_TRUTH = lazy_re(r"True|False")
_WHOLE_NUMBER = lazy_re(r"-?[0-9]{1,9}")


class ConvolutionRow(NamedTuple):
    """Where a convolution has its input, weight and settings; `transposed` if it says so.

    results: of a backward pass, which results it computes, as `[True, True, False]`: the gradients of input
    and weight cost as much as the forward pass, each.
    """

    input: int
    weight: int
    stride: int
    padding: int
    dilation: int
    groups: int
    transposed: int | None = None
    results: int | None = None
    always_transposed: bool = False


_CUDNN = ConvolutionRow(0, 1, stride=3, padding=2, dilation=4, groups=5)
_ATEN = ConvolutionRow(0, 1, stride=3, padding=4, dilation=5, groups=8, transposed=6)
_LAYER = ConvolutionRow(0, 1, stride=3, padding=4, dilation=5, groups=6)
_MIOPEN = ConvolutionRow(0, 1, stride=4, padding=3, dilation=5, groups=6)
_DEPTHWISE = ConvolutionRow(
    0, 1, stride=4, padding=5, dilation=6, groups=2
)  # no groups: kernel_size is there

CONVOLUTIONS = {
    "aten::convolution": _ATEN,
    "aten::_convolution": _ATEN,
    "aten::conv1d": _LAYER,
    "aten::conv2d": _LAYER,
    "aten::conv3d": _LAYER,
    "aten::cudnn_convolution": _CUDNN,
    "aten::miopen_convolution": _MIOPEN,
    "aten::miopen_depthwise_convolution": _MIOPEN,
    "aten::_conv_depthwise2d": _DEPTHWISE,
    "aten::conv_depthwise3d": _DEPTHWISE,
    "aten::cudnn_convolution_transpose": ConvolutionRow(0, 1, 4, 2, 5, 6, always_transposed=True),
    "aten::miopen_convolution_transpose": ConvolutionRow(0, 1, 5, 3, 6, 7, always_transposed=True),
    "aten::cudnn_convolution_relu": _LAYER,
    "aten::cudnn_convolution_add_relu": ConvolutionRow(0, 1, stride=5, padding=6, dilation=7, groups=8),
    "aten::convolution_backward": ConvolutionRow(1, 2, 4, 5, 6, 9, transposed=7, results=10),
}


class AttentionRow(NamedTuple):
    """Where attention has its query (key and value follow), and what says that it is causal.

    heads_first: [batch, heads, tokens, size], else [batch, tokens, heads, size]. packed: [tokens, heads,
    size], keys and values [..., heads, size], and the mark of an engine step says how many there are.
    """

    query: int
    causal: int
    heads_first: bool
    backward: bool = False
    packed: bool = False


PACKED_ATTENTION: Final = any_of(
    r"vllm::unified_attention(_with_output)?",
    r"aiter::mha_batch_prefill",
    r"\w+::\w*paged_attention_ragged\w*",
)
"""Attention of inference servers over sequences of many lengths."""

ATTENTION: tuple[tuple[re.Pattern[str], AttentionRow], ...] = (
    (any_of(r"aten::_flash_attention_forward"), AttentionRow(0, 8, False)),
    (any_of(r"aten::_flash_attention_backward"), AttentionRow(1, 11, False, True)),
    (any_of(r"aten::_efficient_attention_forward"), AttentionRow(0, 9, False)),
    (any_of(r"aten::_efficient_attention_backward"), AttentionRow(1, 14, False, True)),
    (any_of(r"aten::scaled_dot_product_attention"), AttentionRow(0, 5, True)),
    (any_of(r"aten::_scaled_dot_product_flash_attention"), AttentionRow(0, 4, True)),
    (any_of(r"aten::_scaled_dot_product_flash_attention_backward"), AttentionRow(1, 11, True, True)),
    (any_of(r"aten::_scaled_dot_product_efficient_attention"), AttentionRow(0, 6, True)),
    (any_of(r"aten::_scaled_dot_product_efficient_attention_backward"), AttentionRow(1, 11, True, True)),
    (any_of(r"aten::_scaled_dot_product_cudnn_attention"), AttentionRow(0, 6, True)),
    (any_of(r"aten::_scaled_dot_product_cudnn_attention_backward"), AttentionRow(1, 14, True, True)),
    (any_of(r"aten::_cudnn_attention_forward"), AttentionRow(0, 10, True)),
    (any_of(r"aten::_cudnn_attention_backward"), AttentionRow(1, 14, True, True)),
    (any_of(r"aten::_scaled_dot_product_fused_attention_overrideable"), AttentionRow(0, 5, True)),
    (any_of(r"\w+::_?(flash_attn|fmha|fmha_v3|mha)_(forward|fwd)"), AttentionRow(0, 5, False)),
    (any_of(r"\w+::_?(flash_attn|fmha|mha)_(backward|bwd)"), AttentionRow(1, 11, False, True)),
    (any_of(r"\w+::\w*paged_attention_ragged\w*"), AttentionRow(2, 0, False, packed=True)),
    (PACKED_ATTENTION, AttentionRow(0, 0, False, packed=True)),
)
"""The first row that matches the whole name decides. Other attention over packed sequences does not say how
long they are: it has three dimensions, and no cost here."""

RECURRENT = {
    "aten::_cudnn_rnn": 1,
    "aten::_cudnn_rnn_backward": 2,
    "aten::miopen_rnn": 1,
    "aten::miopen_rnn_backward": 2,
}
"""Recurrent layers of a library, and how many times backward multiplies for each product of the forward pass.
The first two inputs are the sequences and a list of weights."""

MAY_MULTIPLY = any_of(r"aten::(_?linalg|_?fft|_?addr|_?cdist|_trilinear|_?chol|_?lu_|ormqr|mkldnn)\w*")
"""torch's own operators that multiply matrices, and whose FLOPs nobody counts. The other ones do not."""

EXPERTS = any_of(r"\w+::\w*fused_(moe|experts)\w*")
"""A mixture of experts: [tokens, size], [experts, 2 × inner, size], [experts, size, inner], [tokens, chosen
experts]."""

_POINTWISE = (
    "add|sub|rsub|mul|div|pow|maximum|minimum|where|clamp|clamp_min|relu|gelu|silu|sigmoid|tanh|exp|log|sqrt|rsqrt|"
    "neg|abs|square|sin|cos|erf|hardswish|hardsigmoid|leaky_relu|softplus|elu|mish|reciprocal|masked_fill|lerp|addcmul|"
    "addcdiv|gelu_backward|silu_backward|threshold_backward|sigmoid_backward|tanh_backward|hardswish_backward"
)

STREAMED: tuple[tuple[re.Pattern[str], float], ...] = (
    (any_of(rf"aten::({_POINTWISE})_?"), 1),
    (any_of(r"aten::copy_"), 0),
    (any_of(r"aten::(_?softmax|_?log_softmax|(native_)?(layer|group)_norm|rms_norm|_fused_rms_norm)"), 1),
    (any_of(r"aten::(_softmax_backward_data|_log_softmax_backward_data|native_layer_norm_backward)"), 1),
    (any_of(r"_C::(rms_norm|silu_and_mul|gelu_and_mul|gelu_tanh_and_mul)"), 0),  # the result is an input
    (any_of(r"(_C|aiter|sgl_kernel)::fused_add_rms_?norm\w*"), 2),
    (any_of(r"aiter::rms_?norm\w*"), 1),
    (any_of(r"aten::(native_|cudnn_|miopen_)?batch_norm"), 2),
    (any_of(r"aten::(native_|cudnn_|miopen_)batch_norm_backward"), 3),
    (any_of(r"aten::(sum|mean|amax|amin|max|min|argmax|argmin|prod|norm|linalg_vector_norm|var|std)"), 0),
)
"""Memory-bound operators: they read each input once, and write or read again this many times the largest one.
Batch norm reads its input for the statistics, and again to apply them."""


@lru_cache(maxsize=65_536)
def has_cost(name: str) -> bool:
    """Return whether the operator's cost follows from the shapes of its inputs."""
    return (
        name in MATMUL_FACTORS
        or name in CONVOLUTIONS
        or name in RECURRENT
        or attention_row(name) is not None
        or EXPERTS.fullmatch(name, 0, LONGEST_MATCHED) is not None
        or streamed_times(name) is not None
    )


@lru_cache(maxsize=65_536)
def has_settings(name: str) -> bool:
    """Return whether inputs other than tensors matter: for the operator's cost, for where it copies to, or
    for its mode."""
    return (
        name in CONVOLUTIONS
        or attention_row(name) is not None
        or TO_COPY.fullmatch(name, 0, LONGEST_MATCHED) is not None
        or BATCH_NORM.fullmatch(name, 0, LONGEST_MATCHED) is not None
    )


def whole_numbers(setting: str) -> list[int]:
    """Return the whole numbers of an input that is not a tensor, such as `[1, 1]` or `(1,1)`."""
    return [int(found) for found in _WHOLE_NUMBER.findall(setting)]


def gradients(mask: str) -> int:
    """Return how many gradients of input and weight a mask such as `[True, True, False]` asks for."""
    asked = _TRUTH.findall(mask)[:2]
    return asked.count("True") if asked else 2


@lru_cache(maxsize=65_536)
def attention_row(name: str) -> AttentionRow | None:
    """Return the row of ATTENTION that describes the operator; None if it is not attention."""
    return next((row for pattern, row in ATTENTION if pattern.fullmatch(name, 0, LONGEST_MATCHED)), None)


@lru_cache(maxsize=65_536)
def streamed_times(name: str) -> float | None:
    """Return how many times the operator writes or reads again its largest input; None if it is not known."""
    return next((times for pattern, times in STREAMED if pattern.fullmatch(name, 0, LONGEST_MATCHED)), None)
