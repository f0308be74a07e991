"""Operations and bytes of operators, against figures computed by hand from their definitions."""

from __future__ import annotations

import json
import math

from tb_gpudiag.facts.kernels.operator_costs import Cost, OperatorKind, in_order, operator_cost
from tests.with_each import with_each

BF16 = "c10::BFloat16"
Shapes = list[list[int]]


def cost(operator: str, shapes: Shapes, number: str = BF16, settings: list[str] | None = None) -> Cost:
    found = operator_cost(operator, *_texts(shapes, number, settings))
    assert found is not None
    return found


def _texts(shapes: Shapes, number: str, settings: list[str] | None) -> tuple[str, str, str]:
    types = [number if dims else "Scalar" for dims in shapes]
    return json.dumps(shapes), json.dumps(types), "" if settings is None else json.dumps(settings)


CONVOLUTION = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]


@with_each(
    ("shapes", "settings", "operations", "sizes"),
    [
        # 4 items of 4 × 4 positions, each from 2048 × 3 × 3 inputs.
        (
            [[4, 2048, 4, 4], [2048, 2048, 3, 3]],
            CONVOLUTION,
            2 * 4 * 16 * 2048 * 2048 * 9,
            (4, 16, 2048, 2048),
        ),
        # Stride 2 leaves 112 × 112 of 224 × 224 positions.
        (
            [[32, 3, 224, 224], [64, 3, 7, 7], []],
            ["", "", "", "[2, 2]", "[3, 3]", "[1, 1]", "False", "[0, 0]", "1"],
            2 * 32 * 112 * 112 * 64 * 3 * 49,
            (32, 112 * 112, 3, 64),
        ),
        # One channel for each of 96 groups; dilation 2 as wide as a kernel of 5.
        (
            [[8, 96, 28, 28], [96, 1, 3, 3], []],
            ["", "", "", "(1,1)", "(2,2)", "(2,2)", "False", "(0,0)", "96"],
            2 * 8 * 28 * 28 * 96 * 9,
            (8, 28 * 28, 1, 96),
        ),
        # Of a transposed one, each input goes to 2 × 2 positions of 64 channels.
        (
            [[2, 256, 64, 64], [256, 64, 2, 2], []],
            ["", "", "", "[2, 2]", "[0, 0]", "[1, 1]", "True", "[0, 0]", "1"],
            2 * 2 * 256 * 64 * 64 * 64 * 4,
            (2, 64 * 64, 64, 256),
        ),
    ],
)
def test_a_convolution(shapes: Shapes, settings: list[str], operations: int, sizes: tuple[int, ...]) -> None:
    found = cost("aten::convolution", shapes, settings=settings)
    assert (found.kind, found.operations, found.sizes) == (OperatorKind.CONVOLUTION, operations, sizes)


def test_libraries_have_a_convolution_s_settings_elsewhere() -> None:
    shapes = [[32, 3, 224, 224], [64, 3, 7, 7], []]
    expected = 2 * 32 * 112 * 112 * 64 * 3 * 49
    cudnn = ["", "", "[3, 3]", "[2, 2]", "[1, 1]", "1", "False", "False", "True"]
    miopen = ["", "", "", "[3, 3]", "[2, 2]", "[1, 1]", "1", "False", "False"]
    assert cost("aten::cudnn_convolution", shapes[:2], settings=cudnn).operations == expected
    assert cost("aten::miopen_convolution", shapes, settings=miopen).operations == expected
    backward = ["", "", "", "[64]", "[2, 2]", "[3, 3]", "[1, 1]", "False", "[0, 0]", "1"]
    both = cost("aten::convolution_backward", [[32, 64, 112, 112], *shapes[:2]], settings=backward)
    assert both.operations == 2 * expected
    first = cost(
        "aten::convolution_backward",
        [[32, 64, 112, 112], *shapes[:2]],
        settings=[*backward, "[False, True, False]"],  # the images need no gradient
    )
    assert first.operations == expected


def test_a_convolution_without_settings_has_no_cost() -> None:
    texts = _texts([[32, 3, 224, 224], [64, 3, 7, 7]], BF16, None)
    assert operator_cost("aten::cudnn_convolution", *texts) is None


@with_each(
    ("operator", "shape", "causal", "share"),
    [
        ("aten::_flash_attention_forward", [1, 32768, 32, 128], (8, "False"), 1),
        ("aten::_flash_attention_forward", [1, 32768, 32, 128], (8, "True"), 0.5),
        ("aten::_efficient_attention_forward", [1, 32768, 32, 128], (9, "1"), 0.5),
        ("aten::_scaled_dot_product_flash_attention", [1, 32, 32768, 128], (4, "False"), 1),
        ("aten::_scaled_dot_product_cudnn_attention", [1, 32, 32768, 128], (6, "True"), 0.5),
        ("aten::_cudnn_attention_forward", [1, 32, 32768, 128], (10, "True"), 0.5),
        ("flash_attn::_flash_attn_forward", [1, 32768, 32, 128], (5, "True"), 0.5),
        ("aiter::_flash_attn_forward", [1, 32768, 32, 128], (5, ""), 1),
    ],
)
def test_attention(operator: str, shape: list[int], causal: tuple[int, str], share: float) -> None:
    settings = [""] * 15
    settings[causal[0]] = causal[1]
    found = cost(operator, [shape] * 3 + [[]] * 12, settings=settings)
    assert found.operations == int(4 * 32 * 32768**2 * 128 * share)
    assert found.bytes == 4 * math.prod(shape) * 2
    assert found.sizes == (1, 32, 32768, 32768, 128)


def test_backward_attention_computes_five_products_instead_of_two() -> None:
    shape = [2, 512, 8, 64]
    forward = cost("aten::_flash_attention_forward", [shape] * 3)
    backward = cost("aten::_flash_attention_backward", [shape] * 5)
    assert backward.operations * 2 == forward.operations * 5


def test_experts_read_the_weights_that_they_use() -> None:
    shapes = [[512, 7168], [16, 28672, 7168], [16, 7168, 14336], [512, 2]]
    found = cost("vllm::rocm_aiter_fused_moe", shapes, "BFloat16")
    weights = 28672 * 7168 + 7168 * 14336
    assert found.operations == 2 * 512 * 2 * weights
    assert found.bytes == (16 * weights + 2 * 512 * 7168) * 2
    assert found.sizes == (512, 2, 16)
    few = cost("vllm::fused_experts", [[2, 7168], *shapes[1:3], [2, 2]])
    assert few.sizes == (2, 2, 4)  # two tokens use at most four experts


@with_each(
    ("operator", "shapes", "sizes"),
    [
        ("aten::mv", [[512, 1024], [1024]], (1, 512, 1024, 1)),
        ("aten::addmv_", [[512], [512, 1024], [1024], [], []], (1, 512, 1024, 1)),
        ("aten::_addmm_activation", [[64], [32, 16], [16, 64], [], []], (1, 32, 16, 64)),
        # 8 groups share the rows, the inner size, the columns, or none of them.
        ("aten::_grouped_mm", [[4096, 512], [8, 512, 256], [8]], (1, 4096, 512, 256)),
        ("aten::_grouped_mm", [[512, 4096], [4096, 256], [8]], (1, 512, 4096, 256)),
        ("aten::_grouped_mm", [[8, 128, 512], [512, 2048], [8]], (1, 128, 512, 2048)),
        ("aten::_grouped_mm", [[8, 128, 512], [8, 512, 256], []], (8, 128, 512, 256)),
        ("aiter::gemm_a16w16", [[32, 4096], [6144, 4096], []], (1, 32, 4096, 6144)),
    ],
)
def test_products_of_vectors_and_of_groups(operator: str, shapes: Shapes, sizes: tuple[int, ...]) -> None:
    found = cost(operator, shapes)
    assert (found.kind, found.sizes) == (OperatorKind.MATMUL, sizes)
    assert found.operations == 2 * math.prod(sizes)


def test_groups_read_all_their_weights() -> None:
    found = cost("aten::_grouped_mm", [[4096, 512], [8, 512, 256], [8]])
    assert found.bytes == 2 * (4096 * 512 + 8 * 512 * 256 + 4096 * 256)


@with_each("shapes", [[[8, 16], [16]], [[8, 16], [8, 15, 4]], [[4, 8, 16], [5, 16, 4]], [[8, 16]]])
def test_shapes_that_are_no_groups_have_no_cost(shapes: Shapes) -> None:
    assert operator_cost("aten::_grouped_mm", *_texts(shapes, BF16, None)) is None


def test_gradients_in_fp8_multiply_two_formats() -> None:
    types = json.dumps(["c10::Float8_e5m2", "c10::Float8_e4m3fn"])
    found = operator_cost("aten::_scaled_mm", "[[64, 32], [32, 128]]", types)
    assert found is not None
    assert found.operations == 2 * 64 * 32 * 128


def test_a_recurrent_layer_multiplies_its_weights_at_each_step() -> None:
    """Two layers of an LSTM: 4 gates of 1024, from 1024 inputs and 1024 states; 128 sequences of 96."""
    weights = [[4096, 1024], [4096, 1024], [4096], [4096]] * 2
    shapes, types = json.dumps([[128, 96, 1024], weights]), json.dumps([BF16, "TensorList"])
    forward = operator_cost("aten::_cudnn_rnn", shapes, types)
    backward = operator_cost("aten::_cudnn_rnn_backward", shapes, types)
    assert forward is not None
    assert backward is not None
    assert forward.operations == 2 * 128 * 96 * 4 * 4096 * 1024
    assert backward.operations == 2 * forward.operations


@with_each(
    "shapes",
    ["[]", "[[1, 2, 3]]", "[[1, 2, 3], 7]", '[[1, 2, 3], [["x", 2]]]', "[7, [[2, 2]]]", "[[2, 2, 2], []]"],
)
def test_other_inputs_of_a_recurrent_layer_have_no_cost(shapes: str) -> None:
    assert operator_cost("aten::_cudnn_rnn", shapes, json.dumps([BF16, "TensorList"])) is None


def test_convolutions_of_libraries_that_say_it_by_their_names() -> None:
    transposed = ["", "", "[0, 0]", "[0, 0]", "[2, 2]", "[1, 1]", "1"]
    found = cost("aten::cudnn_convolution_transpose", [[2, 64, 16, 16], [64, 32, 2, 2]], settings=transposed)
    assert found.operations == 2 * 2 * 64 * 16 * 16 * 32 * 4
    depthwise = ["", "", "[3, 3]", "", "[1, 1]", "[1, 1]", "[1, 1]"]
    found = cost("aten::_conv_depthwise2d", [[8, 96, 28, 28], [96, 1, 3, 3]], settings=depthwise)
    assert found.operations == 2 * 8 * 28 * 28 * 96 * 9


@with_each(
    ("operator", "shapes", "number", "moved"),
    [
        ("aten::add", [[8192, 8192], [8192, 8192], []], "float", 3 * 8192**2 * 4),
        ("aten::mul_", [[256, 1024], []], "c10::Half", 2 * 256 * 1024 * 2),
        ("aten::copy_", [[1024, 512], [1024, 512], []], "float", 2 * 1024 * 512 * 4),
        ("aten::_softmax", [[16, 512, 512], [], []], BF16, 2 * 16 * 512**2 * 2),
        ("aten::native_layer_norm", [[64, 768], [], [768], [768], []], BF16, (2 * 64 * 768 + 2 * 768) * 2),
        ("aten::_softmax_backward_data", [[16, 512, 512], [16, 512, 512], []], BF16, 3 * 16 * 512**2 * 2),
        ("aten::native_batch_norm", [[8, 64, 56, 56], [64], [64]], "float", (3 * 8 * 64 * 56**2 + 128) * 4),
        ("aten::sum", [[640, 2048], []], "float", 640 * 2048 * 4),
        # The result is the first input; the residual is updated in place.
        ("_C::rms_norm", [[64, 768], [64, 768], [768], []], BF16, (2 * 64 * 768 + 768) * 2),
        ("_C::fused_add_rms_norm", [[64, 768], [64, 768], [768], []], BF16, (4 * 64 * 768 + 768) * 2),
        ("aten::add", [[100], [100]], "double", 3 * 100 * 8),
    ],
)
def test_what_memory_bound_operators_move(operator: str, shapes: Shapes, number: str, moved: int) -> None:
    found = cost(operator, shapes, number)
    assert (found.kind, found.operations, found.bytes) == (OperatorKind.STREAMED, 0, moved)


def test_one_factor_for_a_whole_batch_is_read_once() -> None:
    found = cost("aten::matmul", [[8, 128, 64], [64, 32]])
    assert found.sizes == (1, 8 * 128, 64, 32)
    assert found.operations == 2 * 8 * 128 * 64 * 32
    assert cost("aten::matmul", [[8, 128, 64], [8, 64, 32]]).sizes == (8, 128, 64, 32)


def test_fp8_matmuls_write_16_bits() -> None:
    found = cost("aten::_scaled_mm", [[64, 32], [32, 128]], "c10::Float8_e4m3fn")
    assert found.bytes == 64 * 32 + 32 * 128 + 2 * 64 * 128


@with_each(
    ("operator", "shapes", "types"),
    [
        ("aten::unknown", "[[1, 2]]", '["float"]'),
        ("aten::add", "[[1, 2], [", '["float"]'),
        ("aten::add", "7", '["float"]'),
        ("aten::add", '[["x"]]', '["float"]'),
        ("aten::add", "[[1, -2]]", '["float"]'),
        ("aten::add", "[[4, 4]]", "[]"),
        ("aten::add", "[[4, 4]]", '["c10::complex<float>"]'),
        ("aten::add", "[[0, 4]]", '["float"]'),
        ("aten::add", f"[{[2**39] * 2}]", '["float"]'),
        ("aten::convolution", f"[{[1] * 60}, {[1] * 60}]", '["float", "float"]'),
        ("aten::_flash_attention_forward", "[[4, 4], [4, 4], [4, 4]]", '["float", "float", "float"]'),
        ("vllm::fused_moe", "[[4, 4], [2, 8, 4], [2, 4, 4], [5, 2]]", '["float", "float", "float"]'),
        ("aten::convolution", "[[4, 4, 4], [4, 4, 9]]", '["float", "float"]'),
    ],
)
def test_inputs_that_do_not_fit_have_no_cost(operator: str, shapes: str, types: str) -> None:
    settings = '["", "", "", "[1]", "[0]", "[1]", "False", "[0]", "1"]'
    assert operator_cost(operator, shapes, types, settings) is None


@with_each(
    ("shapes", "strides", "expected"),
    [
        ([[4, 8]], [[8, 1]], True),
        ([[4, 8]], [[1, 4]], True),
        ([[4, 8], [4, 8]], [[8, 1], [1, 4]], False),
        ([[4, 8]], [[16, 1]], False),  # with gaps
        ([[4, 8], [4, 8]], [[8, 1], [0, 1]], False),  # broadcast
        ([[4, 8], [8]], [[8, 1], [1]], True),  # a small input is read from the cache
        ([[1, 8, 1]], [[77, 1, 9]], True),  # the strides of single entries mean nothing
        ([[2, 3, 4, 5]], [[60, 1, 15, 3]], True),  # channels last
        ([[4, 8], []], [[8, 1], []], True),
        ([[4, 8]], [], None),
        ([[4, 8]], [[8, 1], [1]], None),
        ([[4, 8]], ["x"], None),
        ([[]], [[]], None),
    ],
)
def test_inputs_in_order_are_dense_and_alike(
    shapes: list[object], strides: list[object], expected: bool | None
) -> None:
    assert in_order(json.dumps(shapes), json.dumps(strides)) is expected
