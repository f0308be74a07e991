from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tb_gpudiag.rules.answer import CannotTell, Severity
from tb_gpudiag.rules.kernels.slow_matmul import RULE
from tb_gpudiag.rules.kernels.unaligned_matmul import RULE as UNALIGNED
from tb_gpudiag.rules.shared.roofline_evidence import why_slow
from tb_gpudiag.wording.quantity import bandwidth, duration, intensity, number, share_of, throughput
from tests.builder import DeviceProperties, TraceBuilder
from tests.rules.stage import STEP_AT, cannot_tell, facts_of, figures, finding, is_clear, one_step, removed_ns

BF16 = "c10::BFloat16"
GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align8>()"


def _matmul(
    us: float,
    size: int = 1024,
    *,
    device: str = "NVIDIA H100 80GB HBM3",
    shapes: bool = True,
    kernel: str = GEMM,
) -> TraceBuilder:
    """Build a step with one bf16 matmul of two size x size matrices."""
    trace, main = one_step(devices=(device,))
    main.frame("model.py(8): forward", at=STEP_AT, us=100)
    inputs = [[size, size], [size, size]] if shapes else None
    main.op("aten::mm", at=STEP_AT, us=20, shapes=inputs, types=[BF16, BF16] if shapes else None)
    main.launch(kernel, at=STEP_AT + 5, us=5, runs_at=STEP_AT + 20, runs_us=us)
    return trace


def test_fires_with_shape_rate_and_limit(tmp_path: Path) -> None:
    facts = facts_of(_matmul(400, 4096), tmp_path)
    assert is_clear(RULE.check(facts))  # 35% of the roofline: mediocre, but not far below
    facts = facts_of(_matmul(800, 4096), tmp_path / "slow")
    found = finding(RULE.check(facts))
    # Half of the roofline takes twice 139 µs.
    assert abs(found.cost_ns - (800_000 - 2 * 138_968)) < 100
    assert removed_ns(found, facts) == pytest.approx(found.cost_ns)
    evidence = figures(found)
    assert evidence["Beyond half the roofline's rate"][0] == duration(found.cost_ns)
    rate = 2 * 4096**3 / 800_000 / 1e3
    assert evidence["“aten::mm” [[4096,4096],[4096,4096]], bfloat16"] == (
        duration(800_000),
        number(1, "call"),
        throughput(rate),
        share_of(2 * 4096**3 / 989e3 / 800_000, 1, "of the roofline"),
        intensity(4096 / 3, "(compute-bound)"),
    )
    assert evidence["Stated memory bandwidth"] == (bandwidth(3350),)
    assert found.places[0].line == 8
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.INFO


def test_just_under_the_threshold_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_matmul(54, 1024), tmp_path)))  # saves 4.97% of the window


def test_kernels_that_are_slow_because_they_are_small_are_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_matmul(49, 64), tmp_path)))


def test_time_claimed_by_another_rule_is_not_counted(tmp_path: Path) -> None:
    facts = facts_of(_matmul(800, 4096, kernel=GEMM.replace("align8", "align1")), tmp_path)
    assert is_clear(RULE.check(facts, finding(UNALIGNED.check(facts)).claims))


def test_cannot_tell_without_shapes_or_peaks(tmp_path: Path) -> None:
    assert cannot_tell(RULE.check(facts_of(_matmul(800, shapes=False), tmp_path / "shapes")))
    unnamed = _matmul(800, device="Test GPU")
    unnamed.recording.devices = [DeviceProperties("Test GPU", compute_major=99)]
    assert cannot_tell(RULE.check(facts_of(unnamed, tmp_path / "peaks")))


def _operator(
    operator: str, kernel: str, us: float, shapes: list[list[int]], settings: list[str], device: str
) -> TraceBuilder:
    """Build a step with one operator on bf16 tensors."""
    trace, main = one_step()
    trace.recording.devices = [DeviceProperties(device, compute_major=99)]
    main.op(operator, at=STEP_AT, us=20, shapes=shapes, types=[BF16] * len(shapes))
    span = trace.recording.host[-1]
    trace.recording.host[-1] = replace(span, args={**span.args, "Concrete Inputs": settings})
    main.launch(kernel, at=STEP_AT + 5, us=5, runs_at=STEP_AT + 20, runs_us=us)
    return trace


FLASH = ("aten::_flash_attention_forward", "attn_fwd")
HEADS = [[2, 2048, 16, 128]] * 3
CONVOLUTION = ("aten::convolution", "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc")
SAME = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]


def test_attention_far_below_the_roofline_is_named(tmp_path: Path) -> None:
    trace = _operator(*FLASH, 800, HEADS, [""] * 8 + ["False"], "NVIDIA H100 80GB HBM3")
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    least_ns = 4 * 2 * 16 * 2048**2 * 128 / 989e3
    assert found.cost_ns == round(800_000 - 2 * least_ns)
    assert found.title.startswith("Attention far below")
    assert "sdpa_kernel" in found.fix.code


def test_the_backward_pass_of_attention_is_not_judged(tmp_path: Path) -> None:
    """It is as far below the roofline in healthy jobs."""
    names = "aten::_flash_attention_backward", "attn_bwd"
    trace = _operator(*names, 4_000, HEADS[:1] + HEADS, [""] * 11 + ["False"], "NVIDIA H100 80GB HBM3")
    assert is_clear(RULE.check(facts_of(trace, tmp_path)))


def test_a_convolution_with_few_positions_is_named(tmp_path: Path) -> None:
    shapes = [[4, 2048, 4, 4], [2048, 2048, 3, 3]]
    trace = _operator(*CONVOLUTION, 800, shapes, SAME, "NVIDIA H100 80GB HBM3")
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert found.title.startswith("Convolutions far below")
    (label,) = [label for label in figures(found) if "convolution" in label]
    assert figures(found)[label][-1] == "4 × 16 positions for 2,048 × 2,048 channels"
    assert found.fix.text == "Use a larger batch and channels last."  # it computes in 16 bits already


def test_without_peaks_the_rate_and_the_shape_are_still_said(tmp_path: Path) -> None:
    shapes = [[4, 2048, 4, 4], [2048, 2048, 3, 3]]
    answer = RULE.check(facts_of(_operator(*CONVOLUTION, 800, shapes, SAME, ""), tmp_path))
    assert isinstance(answer, CannotTell)
    assert str(throughput(2 * 4 * 16 * 2048**2 * 9 / 800_000 / 1e3)) in answer.reason
    assert "4 × 16 positions" in answer.reason


@pytest.mark.parametrize(
    ("left", "right", "reason"),
    [
        ([16, 4096], [4096, 4096], "tall and skinny (16 × 4,096 × 4,096)"),
        ([131072, 256], [256, 32], "tall and skinny (131,072 × 256 × 32)"),
        ([256, 131072], [131072, 512], "few tiles: a result of 256 × 512 over an inner size of 131,072"),
        ([4096, 4097], [4097, 4096], "misaligned: 4097 is not a multiple of 8"),
        ([4096, 4097], [4097, 4099], "misaligned: 4097 and 4099 are not multiples of 8"),
        ([4096, 4096], [4096, 4096], ""),
    ],
)
def test_why_a_matmul_is_slow(left: list[int], right: list[int], reason: str, tmp_path: Path) -> None:
    trace = _operator("aten::mm", GEMM, 800, [left, right], [], "NVIDIA H100 80GB HBM3")
    roofline = facts_of(trace, tmp_path).gpu.roofline
    assert why_slow(roofline.operators[0]) == reason


def test_a_step_without_matmuls_is_clear(tmp_path: Path) -> None:
    trace = _operator("aten::sum", "reduce_kernel", 800, [[4096, 4096]], [], "NVIDIA H100 80GB HBM3")
    assert is_clear(RULE.check(facts_of(trace, tmp_path)))
