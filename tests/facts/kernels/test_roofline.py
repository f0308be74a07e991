"""The roofline of matmuls, and how many blocks a multiprocessor runs at once."""

from __future__ import annotations

import pytest

from tb_gpudiag.facts.core.device_properties import parse_properties
from tb_gpudiag.facts.kernels.multiprocessors import multiprocessor, occupancy
from tb_gpudiag.facts.kernels.operator_costs import OperatorKind
from tb_gpudiag.facts.kernels.roofline import OperatorTime
from tests.builder import DeviceProperties, TraceBuilder
from tests.conftest import SHARED_TRACES
from tests.facts import facts_of
from tests.real_traces import real_facts
from tests.with_each import with_each

BF16 = "c10::BFloat16"
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas"


def _products(
    operator: str, shapes: list[list[int]], types: list[str], us: float, kernel: str = GEMM
) -> list[OperatorTime]:
    trace = TraceBuilder(devices=("NVIDIA H100 80GB HBM3",))
    main = trace.thread()
    main.op("aten::linear", at=0, us=50)
    main.op(operator, at=1, us=40, shapes=shapes, types=types)
    main.launch(kernel, at=5, us=5, runs_at=60, runs_us=us)
    found = facts_of(trace).gpu.roofline
    return found.operators


def _attention(mark: str, us: tuple[float, float]) -> list[OperatorTime]:
    """Return attention of two layers of a server, over sequences of the lengths that the mark says."""
    trace = TraceBuilder(devices=("NVIDIA H100 80GB HBM3",))
    main = trace.thread()
    main.annotation(mark, at=0, us=1_000)
    sizes = [[64, 32, 128], [1_000, 8, 128], [1_000, 8, 128], [64, 32, 128]]
    for layer in (0, 1):
        at = 400 * layer
        main.op("vllm::unified_attention_with_output", at=at + 1, us=40, shapes=sizes, types=[BF16] * 4)
        main.launch("flash_fwd_kernel", at=at + 5, us=5, runs_at=at + 60, runs_us=us[layer])
    return facts_of(trace).gpu.roofline.operators


def test_attention_over_the_lengths_that_a_server_s_mark_says() -> None:
    """By hand: 64 queries of 64 requests, each with 2,048 keys."""
    mark = "execute_64_context_0(sq0sk0sqsq0sqsk0)_generation_64(sq64sk131072sqsq64sqsk131072)"
    (found,) = _attention(mark, (200, 210))
    assert (found.kind, found.calls) == (OperatorKind.ATTENTION, 2)
    assert found.operations == 2 * (4 * 131_072 * 32 * 128)
    assert found.bytes == 2 * 2 * (2 * 64 * 32 * 128 + 131_072 * 8 * 256)
    assert found.reached == pytest.approx(found.bytes / 3.35e12 / 410e-6)


@with_each(
    ("mark", "us"),
    [
        ("execute_context_0(0)_generation_64(64)", (200, 210)),  # the mark says no lengths
        # One layer looks at a window of the keys.
        ("step[DECODE bs=64 g_sqsq=64 g_sqsk=131072 g_sk=131072]", (50, 200)),
    ],
)
def test_attention_over_unknown_lengths_has_no_roofline(mark: str, us: tuple[float, float]) -> None:
    assert _attention(mark, us) == []


def test_arithmetic_limits_a_large_matmul() -> None:
    """By hand: 2 * 4096^3 = 137 GFLOP at 989 TFLOP/s are 139 us; 100 MB at 3.35 TB/s 30 us."""
    (product,) = _products("aten::mm", [[4096, 4096], [4096, 4096]], [BF16, BF16], 200)
    assert product.operations == 2 * 4096**3
    assert product.bytes == 3 * 4096**2 * 2
    assert product.arithmetic_ns == pytest.approx(138_968, rel=1e-4)
    assert product.memory_ns == pytest.approx(30_048, rel=1e-4)
    assert product.reached == pytest.approx(0.695, abs=0.001)


@with_each(
    ("operator", "shapes", "sizes"),
    [
        ("aten::addmm", [[512], [64, 32], [32, 512], [], []], (1, 64, 32, 512)),
        ("aten::addmm", [[64, 512], [64, 32], [32, 512], [], []], (1, 64, 32, 512)),
        ("aten::bmm", [[16, 8, 64], [16, 64, 32]], (16, 8, 64, 32)),
        ("aten::baddbmm", [[16, 8, 32], [16, 8, 64], [16, 64, 32], [], []], (16, 8, 64, 32)),
        # A layer's weights are read once for any batch.
        ("aten::linear", [[4, 128, 64], [32, 64], [32]], (1, 512, 64, 32)),
    ],
)
def test_sizes_of_every_operator(operator: str, shapes: list[list[int]], sizes: tuple[int, ...]) -> None:
    batch, rows, inner, columns = sizes
    types = [BF16] * 3 if len(shapes) != 2 else [BF16] * 2
    (product,) = _products(operator, shapes, types, 100)
    assert product.operations == 2 * batch * rows * inner * columns
    assert product.bytes == 2 * batch * (rows * inner + inner * columns + rows * columns)


@with_each(
    ("shapes", "types"),
    [
        ([[64, 32], [31, 64]], [BF16, BF16]),
        ([[64, 32]], [BF16, BF16]),
        ([[], []], [BF16, BF16]),
        ([[64, 0], [0, 64]], [BF16, BF16]),
        ([[64, 10**300], [10**300, 64]], [BF16, BF16]),
        ([[64, 32], [32, 64]], ["c10::complex<float>", "c10::complex<float>"]),
        ([[64, 32], [32, 64]], [BF16, "float"]),
        ([[64, 32], [32, 64]], []),
    ],
)
def test_other_operators_and_unknown_formats_are_dropped(shapes: list[list[int]], types: list[str]) -> None:
    assert _products("aten::mm", shapes, types, 100) == []


@with_each(
    ("kernel", "us", "peak"),
    [
        ("ampere_sgemm_128x128_nn", 5_000, 67.0),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_cublas", 5_000, 494.0),
        ("some_gemm_of_another_library", 5_000, 67.0),  # the name does not tell: the slower peak,
        ("some_gemm_of_another_library", 1_000, 494.0),  # unless it is faster than that
    ],
)
def test_the_peak_of_fp32_depends_on_what_multiplies(kernel: str, us: float, peak: float) -> None:
    (product,) = _products("aten::mm", [[4096, 4096], [4096, 4096]], ["float", "float"], us, kernel)
    assert product.operations / product.arithmetic_ns / 1e3 == pytest.approx(peak)


def test_a_gpu_without_stated_peaks_has_no_roofline() -> None:
    trace = TraceBuilder()
    trace.recording.devices = [DeviceProperties("Test GPU", compute_major=99)]
    trace.thread().launch(GEMM, at=5, us=5, runs_at=60, runs_us=10)
    assert facts_of(trace).gpu.roofline.peaks is None


@pytest.mark.skipif(not SHARED_TRACES.is_dir(), reason="no real traces here")
@pytest.mark.parametrize("folder", ["h100_owlv2", "h100_timesformer", "rtx5080_without_cuda_graph"])
def test_no_recorded_matmul_is_faster_than_the_roofline(folder: str) -> None:
    (path,) = (SHARED_TRACES / folder).iterdir()
    line = real_facts(path).gpu.roofline
    assert line is not None
    computing = line.of(OperatorKind.MATMUL, OperatorKind.CONVOLUTION, OperatorKind.ATTENTION)
    assert computing
    assert max(found.reached for found in computing) <= 1.0
    # The largest layers of a transformer run at over half of it.
    assert max(p.reached for p in computing if p.operations > p.calls * 10**10) > 0.5


A100 = {
    "computeMajor": 8,
    "computeMinor": 0,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerMultiprocessor": 65536,
    "sharedMemPerMultiprocessor": 167936,
}


@with_each(
    ("threads", "registers", "shared_bytes", "blocks", "share"),
    [
        # From CUDA's occupancy calculator for 8.0.
        (256, 32, 0, 8, 1.0),
        (256, 64, 0, 4, 0.5),
        (256, 255, 0, 1, 0.125),
        (128, 168, 49152, 3, 0.1875),
        (32, 16, 0, 32, 0.5),  # no more than 32 blocks
        (1024, 40, 0, 1, 0.5),
        (128, 32, 100_000, 1, 0.0625),
    ],
)
def test_blocks_of_a_multiprocessor(
    threads: int, registers: int, shared_bytes: int, blocks: int, share: float
) -> None:
    trace = TraceBuilder()
    trace.thread().launch(
        "k",
        at=0,
        us=5,
        runs_at=6,
        runs_us=10,
        grid=(80 * 3, 1, 1),
        block=(threads, 1, 1),
        registers=registers,
        shared_bytes=shared_bytes,
    )
    facts = facts_of(trace)
    has = multiprocessor(parse_properties(A100))
    assert has is not None
    assert facts.device is not None
    found = occupancy(facts.device.kernels, has)
    assert found.blocks.tolist() == [blocks]
    assert found.share.tolist() == [pytest.approx(share)]
    assert found.waves.tolist() == [pytest.approx(3 / blocks)]


@with_each(
    "properties",
    [
        {**A100, "computeMajor": None},
        {**A100, "computeMajor": 3, "computeMinor": 5},
        {**A100, "warpSize": 64},  # AMD's
        {**A100, "maxThreadsPerMultiprocessor": 108},  # torch 2.13's Python export has the SMs here
        {**A100, "regsPerMultiprocessor": None},
        {**A100, "sharedMemPerMultiprocessor": "much"},
        {"computeMajor": 8, "computeMinor": 0},
    ],
)
def test_an_unknown_gpu_has_no_multiprocessor(
    properties: dict[str, object],
) -> None:
    assert multiprocessor(parse_properties(properties)) is None
