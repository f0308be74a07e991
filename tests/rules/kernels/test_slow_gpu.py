from __future__ import annotations

from pathlib import Path

from tb_gpudiag.rules.answer import Clear, Severity
from tb_gpudiag.rules.kernels.low_bandwidth import RULE as BANDWIDTH
from tb_gpudiag.rules.kernels.slow_gpu import RULE
from tb_gpudiag.rules.kernels.slow_matmul import RULE as MATMUL
from tests.builder import DeviceProperties, TraceBuilder
from tests.rules.stage import cannot_tell, facts_of, figures, finding, is_clear

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)"
GEMM = "ampere_sgemm_128x64_nn"
WINDOW_US = 100_000
LAPTOP = DeviceProperties("NVIDIA RTX 500 Ada Generation Laptop GPU", compute_major=8, compute_minor=9)
MI300X = DeviceProperties("AMD Instinct MI300X", compute_major=9, compute_minor=4, multiprocessors=304)


def _job(
    add_us: float,
    matmul_us: float,
    *,
    device: DeviceProperties = LAPTOP,
    size: int = 2048,
    shapes: bool = True,
    strides: list[int] | None = None,
) -> TraceBuilder:
    """Build a step with an add of two FP32 matrices (50 MB, 393 us at 128 GB/s) and a matmul of them (17
    GFLOP, 1.8 ms at 9.6 TFLOP/s)."""
    trace = TraceBuilder()
    trace.recording.devices = [device]
    main = trace.thread()
    main.step(0, at=0, us=WINDOW_US)
    inputs = [[size, size], [size, size]]
    types = ["float", "float"] if shapes else None
    given = inputs if shapes else None
    layout = {"Input Strides": [strides or [size, 1], [size, 1]]}
    main.op("aten::add", at=0, us=9, shapes=given, types=types, more=layout)
    main.launch(ADD, at=1, us=5, runs_at=20, runs_us=add_us)
    main.op("aten::mm", at=10, us=9, shapes=given, types=types)
    main.launch(GEMM, at=11, us=5, runs_at=30 + add_us, runs_us=matmul_us)
    return trace


def test_fires_if_different_operators_are_far_below_their_peaks(tmp_path: Path) -> None:
    facts = facts_of(_job(13_000, 80_000), tmp_path)  # 3.9 GB/s and 0.2 TFLOP/s
    found = finding(RULE.check(facts))
    least_ns = 3 * 2048**2 * 4 / 128 + 2 * 2048**3 / 9.6e3
    assert abs(found.cost_ns - (93_000_000 - 2 * least_ns)) < 1000
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.WARNING
    assert "nvidia-smi -q -d CLOCK,POWER,PERFORMANCE" in found.fix.code
    assert "contiguous inputs" in figures(found)["“aten::add” [[2048,2048],[2048,2048]], float"]
    # Neither rule about operators calls that fine, or blames a layout.
    for rule in (BANDWIDTH, MATMUL):
        answer = rule.check(facts, found.claims)
        assert isinstance(answer, Clear)
        assert "other findings count" in answer.reason


def test_amd_has_its_own_tool(tmp_path: Path) -> None:
    found = finding(RULE.check(facts_of(_job(30_000, 60_000, device=MI300X, size=4096), tmp_path)))
    assert "rocm-smi" in found.fix.code


def test_one_operator_near_its_peak_shows_that_the_gpu_is_fine(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_job(13_000, 3_000), tmp_path)))


def test_one_poor_kernel_is_not_the_gpu(tmp_path: Path) -> None:
    # The add reads a transposed matrix, so only the matmul is judged.
    assert is_clear(RULE.check(facts_of(_job(13_000, 80_000, strides=[1, 2048]), tmp_path)))


def test_small_operators_are_not_judged(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_job(40_000, 40_000, size=64), tmp_path)))


def test_a_healthy_trace_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_job(500, 2_500), tmp_path)))


def test_it_cannot_tell_without_shapes_or_peaks(tmp_path: Path) -> None:
    assert cannot_tell(RULE.check(facts_of(_job(500, 2_500, shapes=False), tmp_path / "shapes")))
    unknown = DeviceProperties("Test GPU", compute_major=99)
    assert cannot_tell(RULE.check(facts_of(_job(500, 2_500, device=unknown), tmp_path / "peaks")))
