from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.rules.answer import CannotTell, Severity
from tb_gpudiag.rules.kernels.low_bandwidth import RULE
from tb_gpudiag.wording.quantity import bandwidth, duration, number, share_of
from tests.builder import DeviceProperties, TraceBuilder
from tests.rules.stage import STEP_AT, facts_of, figures, finding, is_clear, one_step

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)"


def _adding(
    us: float,
    *,
    rows: int = 4096,
    calls: int = 1,
    device: str = "NVIDIA H100 80GB HBM3",
    strides: list[list[int]] | None = None,
) -> TraceBuilder:
    """Build a step that adds two matrices of rows × 8192 FP32 numbers: 403 MB, 120 µs at 3.35 TB/s."""
    trace, main = one_step()
    trace.recording.devices = [DeviceProperties(device, compute_major=99)]
    main.frame("model.py(8): forward", at=STEP_AT, us=100)
    for call in range(calls):
        shapes = [[rows, 8192], [rows, 8192], []]
        at = STEP_AT + 10 * call
        layout = {"Input Strides": strides} if strides else None
        main.op("aten::add", at=at, us=9, shapes=shapes, types=["float", "float", "Scalar"], more=layout)
        main.launch(ADD, at=at + 1, us=5, runs_at=STEP_AT + 20 + us * call, runs_us=us)
    return trace


LEAST_NS = 3 * 4096 * 8192 * 4 / 3350


def test_fires_with_the_bandwidth_that_was_reached(tmp_path: Path) -> None:
    facts = facts_of(_adding(400, calls=2), tmp_path)
    found = finding(RULE.check(facts))
    assert found.cost_ns == round(800_000 - 2 * LEAST_NS / 0.75)
    assert found.places[0].line == 8
    evidence = figures(found)
    assert evidence["“aten::add” [[4096,8192],[4096,8192]], float"] == (
        duration(800_000),
        number(2, "call"),
        bandwidth(3 * 4096 * 8192 * 4 / 400_000),
        share_of(LEAST_NS, 400_000, "of the bandwidth"),
    )
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.INFO


@pytest.mark.parametrize("compiled", [True, False])
def test_compiled_code_is_not_compiled_again(compiled: bool, tmp_path: Path) -> None:
    trace = _adding(400)
    if compiled:
        trace.thread().op("Torch-Compiled Region: 0/0", at=STEP_AT, us=50)
    fix = finding(RULE.check(facts_of(trace, tmp_path))).fix
    assert ("torch.compile" in fix.code) != compiled
    assert ("fuse" in fix.text) != compiled


def test_the_layout_is_blamed_only_if_the_inputs_are_not_contiguous(tmp_path: Path) -> None:
    unknown = finding(RULE.check(facts_of(_adding(400), tmp_path / "unknown")))
    assert "Usually" in unknown.summary
    transposed = _adding(400, strides=[[8192, 1], [1, 4096], []])
    blamed = finding(RULE.check(facts_of(transposed, tmp_path / "transposed")))
    assert "their inputs are transposed" in blamed.summary
    assert ".contiguous()" in blamed.fix.code
    # Both inputs in column order are as good as both in row order.
    for name, order in (("rows", [8192, 1]), ("columns", [1, 4096])):
        found = finding(RULE.check(facts_of(_adding(400, strides=[order, order, []]), tmp_path / name)))
        assert "it is not the layout" in found.summary
        assert ".contiguous()" not in found.fix.code
        assert "torch.compile" in found.fix.code


@pytest.mark.parametrize("us", [150, 240])
def test_at_half_of_the_bandwidth_is_clear(us: float, tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_adding(us), tmp_path)))


def test_short_kernels_and_small_savings_are_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_adding(49, rows=64), tmp_path / "short")))
    assert is_clear(RULE.check(facts_of(_adding(52, rows=64), tmp_path / "small")))  # 4.95% of the window
    assert finding(RULE.check(facts_of(_adding(60, rows=64), tmp_path / "enough")))


def test_claimed_time_is_not_counted(tmp_path: Path) -> None:
    facts = facts_of(_adding(400), tmp_path)
    assert is_clear(RULE.check(facts, finding(RULE.check(facts)).claims))


def test_cannot_tell_without_peaks(tmp_path: Path) -> None:
    answer = RULE.check(facts_of(_adding(400, device=""), tmp_path / "peaks"))
    assert isinstance(answer, CannotTell)
    assert f"“aten::add” moves {bandwidth(3 * 4096 * 8192 * 4 / 400_000)}" in answer.reason
