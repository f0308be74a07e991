"""Model FLOPs utilization: by hand on built traces, and parts that add up to the window on any trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tb_gpudiag.facts.kernels.mfu import Mfu, Missing, PeakPart, shared_ns
from tests.builder import DeviceProperties, TraceBuilder
from tests.facts import facts_of
from tests.facts.invariants import assert_invariants

GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"
BF16, FP8 = "c10::BFloat16", "c10::Float8_e4m3fn"
H100 = "NVIDIA H100 80GB HBM3"
SIZE = 4096
MATMUL_US = 2 * SIZE**3 / 989e6  # 139 µs at 989 TFLOP/s


class Job:
    """One step on an H100, with one piece of GPU work after the other. Times in µs."""

    def __init__(self, *, shapes: bool = True, device: str = H100) -> None:
        self.trace = TraceBuilder(devices=(device,))
        self.main = self.trace.thread()
        self.shapes = shapes
        self.at, self.calls = 100.0, 0

    def run(self, operator: str, kernel: str, us: float, *, number: str = BF16, size: int = SIZE) -> None:
        self.calls += 1
        square = [[size, size], [size, size]]
        self.main.op(
            operator,
            at=self.calls,
            us=0.9,
            shapes=square if self.shapes else None,
            types=[number, number] if self.shapes else None,
        )
        self.main.launch(kernel, at=self.calls + 0.1, us=0.5, runs_at=self.at, runs_us=us)
        self.at += us

    def idle(self, us: float) -> None:
        self.at += us

    def found(self) -> Mfu:
        return facts_of(self.trace).gpu.mfu


def parts_us(found: Mfu) -> dict[PeakPart, Any]:
    return {part: pytest.approx(ns / 1e3, abs=0.01) for part, ns in found.parts_ns.items() if ns > 1}


def test_the_parts_of_a_step_by_hand() -> None:
    job = Job()
    job.run("aten::mm", GEMM, 200)
    job.run("aten::add", ADD, 50)
    job.run("nccl:all_reduce", ALL_REDUCE, 30)
    job.idle(40)
    job.run("aten::mm", GEMM, 200)
    found = job.found()
    assert found.missing == Missing.NOTHING
    assert found.computes_in == "BF16"
    assert found.peak == pytest.approx(989)
    assert found.operations == 2 * 2 * SIZE**3
    assert parts_us(found) == {
        PeakPart.IDLE: 40,
        PeakPart.COMMUNICATING: 30,
        PeakPart.MEMORY_BOUND: 50,
        PeakPart.LOW_EFFICIENCY: 400 - 2 * MATMUL_US,
        PeakPart.MODEL: 2 * MATMUL_US,
    }
    assert found.share(PeakPart.MODEL) == pytest.approx(2 * MATMUL_US / 520, rel=1e-4)


def test_a_thin_matmul_is_memory_bound() -> None:
    """One row: 33.6 MB at 3.35 TB/s take 10 µs, 34 MFLOP at the peak 0.03 µs."""
    job = Job()
    job.run("aten::mm", GEMM, 200)
    job.main.op("aten::mm", at=20, us=1, shapes=[[1, SIZE], [SIZE, SIZE]], types=[BF16, BF16])
    job.main.launch(GEMM, at=20.1, us=0.5, runs_at=300, runs_us=30)
    parts = job.found().parts_ns
    least_us = (SIZE**2 + 2 * SIZE) * 2 / 3.35e6
    assert parts[PeakPart.MEMORY_BOUND] / 1e3 == pytest.approx(least_us - 2 * SIZE**2 / 989e6, rel=1e-3)


def test_a_slower_format_has_a_part_of_its_own() -> None:
    """FP32 at 67 TFLOP/s: most of the time at its peak is the format's."""
    job = Job()
    for _ in range(3):
        job.run("aten::mm", GEMM, 200)
    job.run("aten::mm", "ampere_sgemm_128x128_nn", 3_000, number="float")
    found = job.found()
    own_us = 2 * SIZE**3 / 67e6
    assert found.computes_in == "BF16"
    assert found.parts_ns[PeakPart.DATA_TYPE] / 1e3 == pytest.approx(own_us - MATMUL_US, rel=1e-4)


def test_a_faster_format_counts_at_its_own_peak() -> None:
    """A product in FP8 that takes 80 µs is below its own peak, and above that of BF16."""
    job = Job()
    for _ in range(3):
        job.run("aten::mm", GEMM, 200)
    job.run("aten::_scaled_mm", GEMM, 80, number=FP8)
    found = job.found()
    assert found.computes_in == "BF16"
    assert found.parts_ns[PeakPart.MODEL] / 1e3 == pytest.approx(
        3 * MATMUL_US + 2 * SIZE**3 / 1979e6, rel=1e-4
    )
    assert found.above_peak_ns == 0


def test_faster_than_the_stated_peak_counts_as_at_the_peak() -> None:
    job = Job()
    job.run("aten::mm", GEMM, 100)
    found = job.found()
    assert found.share(PeakPart.MODEL) == pytest.approx(1.0)
    assert found.above_peak_ns / 1e3 == pytest.approx(MATMUL_US - 100, rel=1e-3)


@pytest.mark.parametrize("operator", ["my::fused_mlp", "CompiledFunction"])
def test_kernels_of_unknown_flops_are_a_part(operator: str) -> None:
    job = Job()
    job.run("aten::mm", GEMM, 200)
    job.run(operator, GEMM, 150)
    found = job.found()
    assert found.parts_ns[PeakPart.UNKNOWN] / 1e3 == pytest.approx(150)
    assert found.unknown == (operator,)


def test_nothing_is_said_where_most_is_unknown() -> None:
    job = Job()
    job.run("aten::mm", GEMM, 200)
    job.run("my::fused_mlp", GEMM, 250)
    assert job.found().missing == Missing.FLOPS


def test_without_shapes_there_is_no_mfu() -> None:
    job = Job(shapes=False)
    job.run("aten::mm", GEMM, 200)
    found = job.found()
    assert (found.missing, found.parts_ns) == (Missing.SHAPES, {})


def test_without_matmuls_there_is_no_mfu() -> None:
    job = Job()
    job.run("aten::add", ADD, 200)
    assert job.found().missing == Missing.MATMULS


def test_without_stated_peaks_the_rate_is_known() -> None:
    job = Job()
    job.trace.recording.devices = [DeviceProperties("Test GPU", compute_major=99)]
    job.run("aten::mm", GEMM, 200)
    found = job.found()
    assert found.missing == Missing.PEAK
    assert found.operations / found.window_ns / 1e3 == pytest.approx(2 * SIZE**3 / 200 / 1e6, rel=1e-3)


def test_a_forward_pass_that_backward_repeats_is_no_mfu() -> None:
    trace = TraceBuilder(devices=(H100,))
    inputs: dict[str, Any] = {"shapes": [[SIZE, SIZE]] * 2, "types": [BF16] * 2}
    main, backward = trace.thread(), trace.thread("autograd")
    main.op("aten::mm", at=1, us=5, sequence=1, **inputs)
    main.launch(GEMM, at=2, us=1, runs_at=100, runs_us=200)
    backward.op("MmBackward0", at=10, us=50, sequence=1, forward_thread=1)
    backward.op("aten::mm", at=12, us=5, sequence=7, **inputs)
    backward.launch(GEMM, at=13, us=1, runs_at=300, runs_us=200)
    backward.op("aten::mm", at=20, us=5, **inputs)
    backward.launch(GEMM, at=21, us=1, runs_at=500, runs_us=200)
    found = facts_of(trace).gpu.mfu
    assert found.parts_ns[PeakPart.MODEL] / 1e3 == pytest.approx(2 * MATMUL_US, rel=1e-4)
    assert found.parts_ns[PeakPart.RECOMPUTED] / 1e3 == pytest.approx(MATMUL_US, rel=1e-4)
    assert found.recomputing_ns / 1e3 == pytest.approx(200)
    assert found.operations == 2 * 2 * SIZE**3


def test_each_step_has_its_mfu() -> None:
    """The second step waits as long as it computes."""
    trace = TraceBuilder(devices=(H100,))
    main = trace.thread()
    for step, (begins, idle) in enumerate([(0, 0), (300, 300)]):
        main.step(step, at=begins, us=300 + idle)
        main.op("aten::mm", at=begins + 1, us=9, shapes=[[SIZE, SIZE]] * 2, types=[BF16] * 2)
        main.launch(GEMM, at=begins + 2, us=5, runs_at=begins + idle + 10, runs_us=290)
    facts = facts_of(trace)
    lengths = np.diff(facts.steady.borders_ns)
    assert facts.gpu.mfu.by_step == pytest.approx((MATMUL_US * 1e3 / lengths).tolist(), rel=1e-3)
    whole = np.dot(facts.gpu.mfu.by_step, lengths) / lengths.sum()
    assert whole == pytest.approx(facts.gpu.mfu.share(PeakPart.MODEL))


_spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 40), st.booleans()), max_size=12)


@given(_spans)
def test_what_overlaps_shares_every_nanosecond(spans: list[tuple[int, int, bool]]) -> None:
    start = np.array([at for at, _, _ in spans], np.int64)
    end = start + np.array([length for _, length, _ in spans], np.int64)
    chosen = np.array([some for _, _, some in spans], np.bool_)
    expected = np.zeros(len(spans))
    for instant in range(100):
        running = chosen & (start <= instant) & (instant < end)
        expected[running] += 1 / max(1, running.sum())
    assert shared_ns(start, end, chosen) == pytest.approx(expected)


_OPERATORS = ("aten::mm", "aten::addmm", "aten::add", "aten::_scaled_mm", "my::kernel", "aten::copy_")
_KERNELS = (GEMM, "ampere_sgemm_128x128_nn", ADD, ALL_REDUCE, "some_kernel")


@st.composite
def _jobs(draw: st.DrawFn) -> TraceBuilder:
    trace = TraceBuilder(devices=(draw(st.sampled_from((H100, "NVIDIA A100-SXM4-40GB"))),))
    main = trace.thread()
    if draw(st.booleans()):
        main.step(0, at=0, us=draw(st.integers(1, 60)))
    for at in range(draw(st.integers(1, 12))):
        size = draw(st.sampled_from((1, 64, 1024, 8192)))
        number = draw(st.sampled_from((BF16, "float", "double", FP8, "c10::Half")))
        shapes = [[size, size]] * 3 if draw(st.integers(0, 9)) else None
        operator = draw(st.sampled_from(_OPERATORS))
        main.op(operator, at=5 * at, us=4, shapes=shapes, types=[number] * 3 if shapes else None)
        main.launch(
            draw(st.sampled_from(_KERNELS)),
            at=5 * at + 1,
            us=1,
            runs_at=5 * at + draw(st.integers(2, 300)),
            runs_us=draw(st.integers(0, 400)),
            stream=draw(st.sampled_from((7, 20))),
        )
    main.copy("HtoD", at=90, us=1, runs_at=draw(st.integers(91, 400)), runs_us=50, bytes=1 << 20)
    return trace


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(_jobs())
def test_parts_add_up_to_the_window_on_any_job(trace: TraceBuilder) -> None:
    assert_invariants(facts_of(trace))
