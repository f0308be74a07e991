"""One-off work is left out wherever it lies, and what goes on in each step is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import Clear
from tb_gpudiag.rules.idle.allocator_in_step import RULE as ALLOCATOR
from tb_gpudiag.rules.idle.input_pipeline import RULE as INPUT
from tb_gpudiag.rules.verdict import find_verdict
from tests.builder import HostThread, TraceBuilder
from tests.facts import facts_of
from tests.rules.stage import finding
from tests.with_each import with_each
from tests.wording.plain import plain

MS = 1_000.0
"""In us, the builder's unit."""

STEP = 10 * MS

Extra = Callable[[HostThread, float], float]
"""Adds what else a step begins with, at a time; returns how long that takes."""


def job(extra: Extra, at_steps: range, *, steps: int = 12, marked: bool = True, workers: int = 4) -> Facts:
    """Build steps of 10 ms: a batch that has arrived, three operators, and kernels that fill half of it."""
    trace = TraceBuilder()
    main = trace.thread()
    at = 0.0
    for number in range(steps):
        begin = at
        more = extra(main, at + 5) if number in at_steps else 0
        at += more
        main.loader(at=at + 10, us=100, workers=workers)
        main.op("aten::to", at=at + 120, us=30)
        main.copy("HtoD", at=at + 125, us=10, runs_at=at + 140, runs_us=20, bytes=2**10, pinned=True)
        for i in range(10):
            main.op("aten::addmm", at=at + 200 + i * 100, us=50)
            main.launch("gemm", at=at + 210 + i * 100, us=5, runs_at=at + 220 + i * 900, runs_us=800)
        main.sync(at=at + 1300, us=STEP - 1400)
        if marked:
            main.step(number, at=begin, us=at + STEP - begin)
        at += STEP
    return facts_of(trace)


def idle_ms(facts: Facts, cause: Cause) -> float:
    ledger = facts.gpu.ledger
    return ledger.by_cause(facts.recording).get(cause, 0) / 1e6


def start_loader(main: HostThread, at: float) -> float:
    """An iterator draws a seed, starts its workers, which no event shows, and waits for their first batch."""
    main.op("aten::empty", at=at, us=4).op("aten::random_", at=at + 5, us=5)
    main.op("aten::item", at=at + 12, us=4).op("aten::_local_scalar_dense", at=at + 13, us=2)
    main.loader(at=at + 200 * MS, us=80 * MS, workers=4)
    return 281 * MS


def with_frames(main: HostThread, at: float) -> float:
    main.frame("torch/utils/data/dataloader.py(1010): __init__", at=at, us=199 * MS)
    main.loader(at=at + 200 * MS, us=80 * MS, workers=4)
    return 281 * MS


@pytest.mark.slow
@with_each("start", [start_loader, with_frames])
@with_each("marked", [True, False])
@with_each("at", [0, 4, 11])
def test_the_start_of_an_epoch_is_left_out_wherever_it_lies(start: Extra, marked: bool, at: int) -> None:
    facts = job(start, range(at, at + 1), marked=marked)
    assert idle_ms(facts, Cause.INITIALIZATION) == pytest.approx(280, abs=1)
    assert len(facts.steps) == (max(at, 11 - at) if at or marked else 12)
    assert facts.step_time.median == pytest.approx(10e6, rel=0.01)
    assert isinstance(INPUT.check(facts, {}), Clear)
    verdict = find_verdict(facts)
    assert verdict.limiter == "compute"
    assert "of the recording are left out" in verdict.sentence


def test_a_loader_that_is_started_in_each_step_is_the_jobs_own_cost() -> None:
    facts = job(start_loader, range(12))
    assert idle_ms(facts, Cause.INITIALIZATION) == 0
    assert len(facts.steps) == 12
    assert find_verdict(facts).limiter != "initialization"
    assert finding(INPUT.check(facts, {})).cost_ns > 12 * 79e6


def test_a_first_batch_that_takes_as_long_as_others_is_loading() -> None:
    def load(main: HostThread, at: float) -> float:
        main.op("aten::empty", at=at, us=4).op("aten::random_", at=at + 5, us=5)
        main.op("aten::item", at=at + 12, us=4)
        return 20

    assert idle_ms(job(load, range(1), workers=0), Cause.INITIALIZATION) == 0


def test_a_seed_for_something_else_starts_no_loader() -> None:
    def draw(main: HostThread, at: float) -> float:
        main.op("aten::empty", at=at, us=4).op("aten::random_", at=at + 5, us=5)
        main.op("aten::item", at=at + 12, us=4)
        main.launch("noise", at=at + 20, us=5, runs_at=at + 30, runs_us=10)
        main.frame("train.py(7): augment", at=at + 50, us=50 * MS)
        return 51 * MS

    assert idle_ms(job(draw, range(4, 5)), Cause.INITIALIZATION) == 0


def create_handle(main: HostThread, at: float) -> float:
    """The first addmm creates the handle of its library: it frees, reads the library, and pins memory."""
    main.op("aten::addmm", at=at, us=117 * MS)
    main.call("cudaFree", at=at + 100, us=2 * MS)
    main.call("cudaHostAlloc", at=at + 90 * MS, us=20 * MS)
    return 118 * MS


@pytest.mark.parametrize("marked", [True, False])
def test_creating_a_librarys_handle_is_first_run_work_as_a_whole(marked: bool) -> None:
    facts = job(create_handle, range(1), marked=marked)
    assert idle_ms(facts, Cause.INITIALIZATION) == pytest.approx(117, abs=1)
    assert idle_ms(facts, Cause.ALLOCATOR) == 0
    assert isinstance(ALLOCATOR.check(facts, {}), Clear)
    assert len(facts.steps) == (11 if marked else 12)  # it lies before the first inferred step


def test_a_long_call_of_the_allocator_between_other_first_run_work_is_first_run_work() -> None:
    """A single pass: no operator has later calls to compare with, and it is not the first cudaFree."""
    trace = TraceBuilder()
    main = trace.thread()
    main.call("cudaStreamCreateWithFlags", at=0, us=300 * MS)
    main.op("aten::empty", at=300 * MS, us=20).call("cudaFree", at=300 * MS + 5, us=5)
    main.op("aten::convolution", at=301 * MS, us=980 * MS)
    main.call("cudaFree", at=302 * MS, us=971 * MS)
    main.launch("conv", at=1290 * MS, us=5 * MS, runs_at=1295 * MS + 10, runs_us=MS)
    facts = facts_of(trace)
    assert idle_ms(facts, Cause.ALLOCATOR) == pytest.approx(0, abs=0.01)
    assert find_verdict(facts).limiter in ("initialization", "unknown")


def test_long_calls_of_the_allocator_in_each_step_are_the_jobs_own_cost() -> None:
    def allocate(main: HostThread, at: float) -> float:
        main.op("aten::empty_strided", at=at, us=16 * MS)
        main.call("cudaMalloc", at=at + 100, us=15 * MS)
        return 17 * MS

    facts = job(allocate, range(12))
    assert idle_ms(facts, Cause.INITIALIZATION) == 0
    assert finding(ALLOCATOR.check(facts, {})).cost_ns == pytest.approx(12 * 15e6, rel=0.01)


def test_memory_that_is_given_back_to_make_room_is_no_first_run_work() -> None:
    def retry(main: HostThread, at: float) -> float:
        main.op("aten::addmm", at=at, us=40 * MS)
        main.alloc(2**20, at=at + 10, reserved=40 * 2**30)
        main.call("cudaFree", at=at + 100, us=30 * MS)
        main.alloc(2**20, at=at + 35 * MS, reserved=20 * 2**30)
        return 41 * MS

    facts = job(retry, range(1))
    assert idle_ms(facts, Cause.ALLOCATOR) == pytest.approx(30, abs=1)
    assert idle_ms(facts, Cause.INITIALIZATION) == 0


def test_a_module_that_the_driver_loads_is_not_the_profilers_cost() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.launch("gemm", at=0, us=5, runs_at=10, runs_us=50 * MS)
    trace.overhead("Runtime Triggered Module Loading", at=51 * MS, us=6 * MS)
    main.frame("train.py(12): train", at=50 * MS, us=8 * MS)
    main.launch("gemm", at=58 * MS, us=5, runs_at=58 * MS + 10, runs_us=50 * MS)
    facts = facts_of(trace)
    assert idle_ms(facts, Cause.PROFILER) == 0
    assert idle_ms(facts, Cause.COMPILE) == 6


def test_loading_in_a_single_later_step_is_left_out() -> None:
    def load(main: HostThread, at: float) -> float:
        main.call("cuModuleLoadData", at=at, us=90 * MS)
        return 91 * MS

    facts = job(load, range(8, 9))
    assert idle_ms(facts, Cause.INITIALIZATION) == pytest.approx(90, abs=1)
    assert len(facts.steps) == 8


def stalls(*, first_ms: float, later_ms: float) -> Facts:
    """Launch kernels of 10 ms, of which the first and the fourth start late."""
    trace = TraceBuilder()
    main = trace.thread()
    at = 0.0
    for number in range(8):
        late = {0: first_ms, 3: later_ms}.get(number, 0) * MS
        main.launch("gemm", at=at, us=5, runs_at=at + 10 + late, runs_us=10 * MS)
        at += 10 + late + 10 * MS
    return facts_of(trace)


def test_a_stall_like_later_ones_is_no_work_from_before_the_recording() -> None:
    assert idle_ms(stalls(first_ms=1.1, later_ms=1.0), Cause.UNRECORDED) == 0
    assert idle_ms(stalls(first_ms=20, later_ms=1.0), Cause.UNRECORDED) == pytest.approx(20, abs=0.1)


def test_a_short_rest_is_not_judged() -> None:
    """The GPU is busy 3% of the recording, and 85% of what is left of it after first-run work."""
    trace = TraceBuilder()
    main = trace.thread()
    main.call("cudaStreamCreateWithFlags", at=0, us=3.9 * MS)
    for i in range(12):
        main.op("aten::mm", at=4 * MS + 12 * i, us=8)
        main.launch("gemm", at=4 * MS + 12 * i, us=5, runs_at=4 * MS + 12 * i + 6, runs_us=10)
    facts = facts_of(trace)
    assert facts.window.duration_ns == facts.recording.duration_ns
    assert (find_verdict(facts).limiter, facts.steady.mostly) == ("initialization", Cause.INITIALIZATION)
    assert find_verdict(facts).busy_share < 0.04


def test_a_long_wait_before_the_first_gpu_work_may_be_earlier_work_and_is_left_out() -> None:
    facts = stalls(first_ms=300, later_ms=0)
    verdict = find_verdict(facts)
    assert (verdict.limiter, facts.steady.mostly) == ("compute", None)
    assert "The first 300 ms of the recording are left out" in plain(verdict.sentence)
    assert "the GPU may have been running work from before the recording" in verdict.sentence


def test_a_lone_step_with_some_first_run_work_is_judged(tmp_path: Path) -> None:
    """A tenth of the step: no reason for silence."""

    def load(main: HostThread, at: float) -> float:
        main.call("cuModuleLoadData", at=at, us=1.2 * MS)
        return 1.3 * MS

    facts = job(load, range(1), steps=1)
    assert facts.steady.mostly is None
    assert idle_ms(facts, Cause.INITIALIZATION) == pytest.approx(1.2, abs=0.1)
    assert find_verdict(facts).limiter == "compute"


@pytest.mark.parametrize(("later_us", "first_run"), [(100, True), (3_000, False)])
def test_the_tracer_sets_itself_up_in_the_first_launch_of_a_lone_pass(
    later_us: float, first_run: bool
) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.op("aten::conv2d", at=0, us=5 * MS)
    main.launch("conv", at=5 * MS - 10, us=5, runs_at=5 * MS, runs_us=50)
    for i in range(100):
        at = 5 * MS + 100 + i * later_us
        main.op("aten::conv2d", at=at, us=0.9 * later_us)
        main.launch("conv", at=at + 0.5 * later_us, us=5, runs_at=at + 0.5 * later_us + 10, runs_us=50)
    facts = facts_of(trace)
    assert (idle_ms(facts, Cause.INITIALIZATION) > 4.9) == first_run
    assert (facts.window.start_ns - facts.recording.start_ns >= 4.9e6) == first_run


def test_an_only_operator_with_a_library_to_load_is_first_run_work_as_a_whole() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.op("aten::cudnn_convolution", at=100, us=100 * MS)
    main.call("cudaGetSymbolAddress", at=200, us=12 * MS)
    main.launch("conv", at=100 * MS, us=5, runs_at=100 * MS + 10, runs_us=50)
    facts = facts_of(trace)
    assert idle_ms(facts, Cause.INITIALIZATION) == pytest.approx(100, abs=0.5)


@pytest.mark.parametrize("warm", [False, True])
def test_cold_calls_of_an_operator_are_first_run_work_unless_one_goes_without(warm: bool) -> None:
    """A first inference: each convolution loads code for a tenth of its time and more."""
    trace = TraceBuilder()
    main = trace.thread()
    for begin, us, load in ((0.0, 60 * MS, 10 * MS), (70 * MS, 8 * MS, 5 * MS)):
        main.op("aten::cudnn_convolution", at=begin, us=us)
        main.call("cudaFuncGetAttributes", at=begin + MS, us=load)
        main.launch("conv", at=begin + us - 10, us=5, runs_at=begin + us, runs_us=50)
    if warm:
        main.op("aten::cudnn_convolution", at=80 * MS, us=40 * MS)
        main.launch("conv", at=119 * MS, us=5, runs_at=120 * MS, runs_us=50)
    facts = facts_of(trace)
    assert (idle_ms(facts, Cause.INITIALIZATION) > 65) != warm


def test_a_stretch_with_hardly_any_gpu_work_is_no_steady_part() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.launch("memset", at=0, us=5, runs_at=10, runs_us=2)
    main.op("aten::cudnn_convolution", at=20, us=60 * MS)
    for i in range(5):
        main.call("cudaStreamCreateWithFlags", at=60 * MS + 100 + i * 10 * MS, us=9 * MS)
        main.launch(
            "conv", at=69 * MS + 200 + i * 10 * MS, us=5, runs_at=69 * MS + 210 + i * 10 * MS, runs_us=60
        )
    facts = facts_of(trace)
    assert facts.window.contains(facts.work.start_ns).all()


@pytest.mark.parametrize("stacks", [True, False])
def test_the_first_batch_of_a_loader_without_workers_takes_as_long_as_any_other(*, stacks: bool) -> None:
    trace = TraceBuilder(devices=())
    main = trace.thread()
    main.frame("train.py(3): main", at=0, us=300 * MS)
    main.op("aten::empty", at=100, us=4).op("aten::random_", at=105, us=5)
    main.op("aten::item", at=112, us=4).op("aten::_local_scalar_dense", at=113, us=2)
    if stacks:
        main.frame("torch/utils/data/dataloader.py(731): __next__", at=199, us=201 * MS)
    main.loader(at=200, us=200 * MS, workers=0)
    main.op("aten::mm", at=210 * MS, us=90 * MS)
    facts = facts_of(trace)
    found = finding(INPUT.check(facts, {}))
    assert found.severity is None
    assert found.cost_ns == pytest.approx(200e6, rel=0.01)
    assert find_verdict(facts).limiter == "input"


def test_files_that_starting_workers_open_are_no_batches(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=())
    main = trace.thread()
    main.frame("torch/utils/data/dataloader.py(1010): __init__", at=0, us=100 * MS)
    main.frame("tempfile.py(153): __next__", at=10 * MS, us=100)
    main.loader(at=101 * MS, us=12_000 * MS, workers=4)
    main.op("aten::mm", at=12_200 * MS, us=200 * MS)
    facts = facts_of(trace)
    assert find_verdict(facts).limiter == "initialization"
    assert isinstance(INPUT.check(facts, {}), Clear)


def test_the_thread_that_fetches_need_not_launch_most() -> None:
    """In one training step, autograd's thread launches more than the one that calls backward."""
    trace = TraceBuilder()
    main, engine = trace.thread(), trace.thread()
    main.op("aten::empty", at=0, us=4).op("aten::random_", at=5, us=5)
    main.op("aten::item", at=12, us=4).op("aten::_local_scalar_dense", at=13, us=2)
    main.loader(at=20, us=12 * MS, workers=4)
    main.copy("HtoD", at=13 * MS, us=10, runs_at=13 * MS + 20, runs_us=20, bytes=2**10, pinned=True)
    main.loader(at=14 * MS, us=5 * MS, workers=4)
    for i, thread in enumerate([main, engine, engine, engine]):
        thread.launch(f"gemm{i}", at=20 * MS + 50 * i, us=5, runs_at=21 * MS + i * 15 * MS, runs_us=15 * MS)
    facts = facts_of(trace)
    assert facts.loader_starts.fresh.size == 1
