from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import CannotTell, Severity
from tb_gpudiag.rules.kernels.small_grids import RULE
from tb_gpudiag.wording.quantity import duration, mean, share_of
from tests.builder import DeviceProperties, TraceBuilder
from tests.builder.recording import GpuSpan
from tests.rules.stage import STEP_AT, STEP_US, cannot_tell, facts_of, figures, finding, is_clear, one_step


def kernel(name: str, blocks: int, us: float, folder: Path) -> Facts:
    """Facts of a step with one kernel on a GPU with 80 multiprocessors."""
    trace, main = one_step()
    main.op("aten::sum", at=STEP_AT, us=15)
    main.launch(name, at=STEP_AT + 5, us=5, runs_at=STEP_AT + 20, runs_us=us, grid=(blocks, 1, 1))
    return facts_of(trace, folder)


def test_fires_and_counts_multiprocessors_without_a_block(tmp_path: Path) -> None:
    facts = kernel("reduce_kernel", 20, 400, tmp_path)
    found = finding(RULE.check(facts))
    assert found.cost_ns == 300_000
    assert RULE.severity_of(found, facts.window.duration_ns) == Severity.INFO
    assert found.places[0].operator == "aten::sum"
    evidence = figures(found)
    assert evidence["Blocks per multiprocessor"] == (mean(0.25),)
    assert evidence["Whole-GPU time wasted"] == (
        duration(300_000),
        share_of(300_000, 1_000_000, "of the step window"),
    )


@pytest.mark.parametrize(
    ("name", "blocks", "us"),
    [
        ("reduce_kernel", 40, 98),  # half of the GPU for 9.8% of the window
        ("reduce_kernel", 80, 900),
        ("reduce_kernel", 1, 4.9),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", 8, 900),
    ],
)
def test_short_kernels_full_grids_and_collectives_are_clear(
    name: str, blocks: int, us: float, tmp_path: Path
) -> None:
    assert is_clear(RULE.check(kernel(name, blocks, us, tmp_path)))


@pytest.mark.parametrize(("us", "clear"), [(150, True), (400, False)])
def test_few_blocks_near_the_peaks_waste_little(us: float, clear: bool, tmp_path: Path) -> None:
    """At the H100's peak, the matmul takes 139 µs."""
    trace, main = one_step(devices=("NVIDIA H100 80GB HBM3",))
    sizes, types = [[4096, 4096], [4096, 4096]], ["c10::BFloat16", "c10::BFloat16"]
    main.op("aten::mm", at=STEP_AT, us=15, shapes=sizes, types=types)
    name = "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNN"
    main.launch(name, at=STEP_AT + 5, us=5, runs_at=STEP_AT + 20, runs_us=us, grid=(40, 1, 1))
    answer = RULE.check(facts_of(trace, tmp_path))
    assert is_clear(answer) == clear
    if not clear:
        assert finding(answer).cost_ns == pytest.approx(200_000, rel=0.01)


def test_concurrent_small_kernels_waste_only_what_they_leave_together(tmp_path: Path) -> None:
    """Ten branches with 8 of 80 blocks each use the whole GPU. Alone, each would waste 90% of its time."""
    trace, main = one_step()
    for branch in range(10):
        main.launch(
            "reduce_kernel",
            at=STEP_AT + branch,
            us=1,
            runs_at=STEP_AT + 20,
            runs_us=900,
            grid=(8, 1, 1),
            stream=7 + branch,
        )
    assert is_clear(RULE.check(facts_of(trace, tmp_path)))


def test_reads_the_grid_on_rocm(tmp_path: Path) -> None:
    """A step with a Tensile kernel of 512 x 4 threads, so 8 blocks, on an MI300X with 304 compute units."""
    trace = TraceBuilder(devices=("AMD Instinct MI300X",))
    trace.recording.devices = [
        DeviceProperties("AMD Instinct MI300X", multiprocessors=304, compute_major=9, compute_minor=4)
    ]
    main = trace.thread()
    main.step(0, at=STEP_AT, us=STEP_US)
    args = {"grid": [512, 4, 1], "block": [256, 1, 1], "blocks per SM": None}
    span = GpuSpan(
        "kernel", "Cijk_Ailk_Bljk_BBS_BH_MT256x128x64_MI16x16x16x1", 0, 7, 120_000, 920_000, args=args
    )
    trace.recording.gpu.append(span)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert found.cost_ns == pytest.approx(800_000 * (1 - 8 / 304), abs=2)


def test_without_multiprocessors_the_blocks_are_still_said(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=())
    trace.thread().step(0, at=STEP_AT, us=STEP_US)
    args = {"grid": [128, 1, 1], "block": [128, 1, 1], "blocks per SM": None}
    trace.recording.gpu.append(GpuSpan("kernel", "attn_fwd", 0, 7, 120_000, 920_000, args=args))
    answer = RULE.check(facts_of(trace, tmp_path))
    assert isinstance(answer, CannotTell)
    assert "128 blocks on average" in answer.reason


def test_cannot_tell_without_blocks(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1.0, "dur": 9.0, "args": {}}
    assert cannot_tell(RULE.check(facts_of(TraceBuilder().raw(event), tmp_path / "rocm")))
