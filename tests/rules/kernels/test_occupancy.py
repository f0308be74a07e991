from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.kernels.occupancy import RULE
from tb_gpudiag.wording.quantity import duration, mean, number, share_of
from tests.builder import TraceBuilder
from tests.rules.stage import STEP_AT, cannot_tell, facts_of, figures, finding, findings, is_clear, one_step

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
MULTIPROCESSORS = 80


def _kernel(
    name: str,
    us: float,
    *,
    blocks: int,
    threads: int = 256,
    registers: int = 32,
    shared_bytes: int = 0,
    operator: str = "aten::mm",
) -> TraceBuilder:
    trace, main = one_step()
    main.op(operator, at=STEP_AT, us=20)
    main.launch(
        name,
        at=STEP_AT + 5,
        us=5,
        runs_at=STEP_AT + 20,
        runs_us=us,
        grid=(blocks, 1, 1),
        block=(threads, 1, 1),
        registers=registers,
        shared_bytes=shared_bytes,
    )
    return trace


def test_fires_on_a_nearly_empty_last_wave(tmp_path: Path) -> None:
    """Two such blocks fit on a multiprocessor, so the blocks of 1.1 waves take the time of 2."""
    trace = _kernel(GEMM, 400, blocks=round(2 * MULTIPROCESSORS * 1.1), registers=128)
    facts = facts_of(trace, tmp_path)
    found = finding(RULE.check(facts))
    assert found.cost_ns == pytest.approx(180_000, abs=10)
    assert "last waves" in found.title
    assert found.places[0].operator == "aten::mm"
    evidence = figures(found)
    assert str(evidence["Waves per kernel"][0]) == str(mean(1.1))
    assert evidence["Whole-GPU time wasted"][0] == duration(found.cost_ns)
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.INFO


def test_an_engine_chooses_its_sizes_by_the_requests(tmp_path: Path) -> None:
    blocks = round(2 * MULTIPROCESSORS * 1.1)
    served = _kernel(GEMM, 400, blocks=blocks, registers=128, operator="vllm::moe_forward")
    assert is_clear(RULE.check(facts_of(served, tmp_path)))


def test_fires_on_low_occupancy(tmp_path: Path) -> None:
    trace = _kernel("triton_poi_fused_add_0", 400, blocks=8000, registers=168, shared_bytes=49152)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert found.cost_ns == 400_000
    assert "low occupancy" in found.title
    evidence = figures(found)
    assert evidence["Occupancy limit"] == (share_of(1, 8, "on average"),)
    assert evidence["Registers per thread"] == (number(168, suffix="on average"),)


@pytest.mark.parametrize(
    "trace",
    [
        _kernel(GEMM, 220, blocks=round(2 * MULTIPROCESSORS * 1.1), registers=128),  # 9.9% of the window
        _kernel(GEMM, 900, blocks=2 * 2 * MULTIPROCESSORS, registers=128),  # whole waves
        _kernel(GEMM, 900, blocks=round(2 * MULTIPROCESSORS * 9.1), registers=128),  # many of them
        _kernel("gemv2T_kernel_val", 900, blocks=round(2 * MULTIPROCESSORS * 1.1), registers=128),  # memory
        _kernel("reduce_kernel", 900, blocks=round(4 * MULTIPROCESSORS * 1.1), registers=64),
        _kernel(GEMM, 900, blocks=8000, registers=255, shared_bytes=100_000),  # usual for tensor cores
        _kernel("triton_poi_fused_add_0", 99, blocks=8000, registers=168),  # 9.9%
        _kernel(
            "triton_poi_fused_add_0", 900, blocks=8000, threads=32, registers=16
        ),  # limited by the block size, not by resources
        _kernel("my_square_kernel", 900, blocks=MULTIPROCESSORS, registers=168),  # persistent
        _kernel("triton_poi_fused_add_0", 19, blocks=8000, registers=168),
    ],
)
def test_short_kernels_whole_waves_and_tensor_cores_are_clear(trace: TraceBuilder, tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(trace, tmp_path)))


def test_kernels_next_to_others_are_clear(tmp_path: Path) -> None:
    """Another stream's kernel uses what a last wave or a low occupancy leaves."""
    for name, blocks, registers in (
        (GEMM, round(2 * MULTIPROCESSORS * 1.1), 128),
        ("triton_poi_fused_add_0", 8000, 168),
    ):
        trace = _kernel(name, 400, blocks=blocks, registers=registers)
        assert findings(RULE.check(facts_of(trace, tmp_path / name[:4])))
        trace.thread("other").launch("k", at=STEP_AT + 5, us=5, runs_at=STEP_AT, runs_us=900, stream=20)
        assert is_clear(RULE.check(facts_of(trace, tmp_path / f"{name[:4]}2")))


def test_cannot_tell_without_kernel_resources(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1.0, "dur": 9.0, "args": {}}
    assert cannot_tell(RULE.check(facts_of(TraceBuilder().raw(event), tmp_path / "rocm")))
