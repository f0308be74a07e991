from __future__ import annotations

from pathlib import Path

from tb_gpudiag.rules.kernels.slow_matmul import RULE
from tb_gpudiag.rules.kernels.unaligned_matmul import RULE as UNALIGNED
from tb_gpudiag.rules.rule import Severity
from tests.builder import TraceBuilder
from tests.rules.stage import STEP_AT, STEP_US, cannot_tell, facts_of, finding, healthy, is_clear, without_gpu

BF16 = "c10::BFloat16"
GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align8>()"


def _product(
    us: float,
    size: int = 1024,
    *,
    device: str = "NVIDIA H100 80GB HBM3",
    shapes: bool = True,
    kernel: str = GEMM,
) -> TraceBuilder:
    """A product of size x size by size x size, in bf16."""
    trace = TraceBuilder(devices=(device,))
    main = trace.thread()
    main.step(0, at=STEP_AT, us=STEP_US)
    main.frame("model.py(8): forward", at=STEP_AT, us=100)
    inputs = [[size, size], [size, size]] if shapes else None
    main.op("aten::mm", at=STEP_AT, us=20, shapes=inputs, types=[BF16, BF16] if shapes else None)
    main.launch(kernel, at=STEP_AT + 5, us=5, runs_at=STEP_AT + 20, runs_us=us)
    return trace


def test_fires_with_the_shape_the_rate_and_the_limit(tmp_path: Path) -> None:
    facts = facts_of(_product(400, 4096), tmp_path)
    assert is_clear(RULE.check(facts))  # 35 % of the roofline: no feat, and not far below
    facts = facts_of(_product(800, 4096), tmp_path / "slow")
    found = finding(RULE.check(facts))
    # Half of the roofline would be twice 139 us.
    assert abs(found.cost_ns - (800_000 - 2 * 138_968)) < 100
    assert found.saving is not None
    assert found.saving.basis == "estimate"
    evidence = {e.label: e.text for e in found.evidence}
    told = evidence["aten::mm [[4096,4096],[4096,4096]], BFloat16"]
    assert told.startswith("800 µs in 1 call, 172 TFLOP/s")
    assert "arithmetic limits it, and it reaches 17.4 %" in told
    assert found.places[0].line == 8
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.INFO


def test_just_under_the_threshold_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_product(54, 1024), tmp_path)))  # 4.97 % of the window to be won


def test_short_kernels_are_a_matter_of_their_size(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_product(49, 64), tmp_path)))


def test_what_another_rule_explains_is_not_counted_again(tmp_path: Path) -> None:
    facts = facts_of(_product(800, 4096, kernel=GEMM.replace("align8", "align1")), tmp_path)
    assert is_clear(RULE.check(facts, finding(UNALIGNED.check(facts)).claims))


def test_cannot_tell_without_shapes_peaks_or_a_gpu(tmp_path: Path) -> None:
    assert cannot_tell(RULE.check(facts_of(_product(800, shapes=False), tmp_path / "shapes")))
    assert cannot_tell(RULE.check(facts_of(_product(800, device="Test GPU"), tmp_path / "peaks")))
    assert cannot_tell(RULE.check(facts_of(without_gpu(), tmp_path / "cpu")))


def test_is_clear_without_matrix_products(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_product(800, kernel="reduce_kernel"), tmp_path)))


def test_a_healthy_job_is_no_finding(tmp_path: Path) -> None:
    assert cannot_tell(RULE.check(facts_of(healthy(), tmp_path)))  # of a GPU whose peaks nobody states
