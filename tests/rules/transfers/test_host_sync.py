from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.savings import predicted_of, with_saving
from tb_gpudiag.rules.transfers.host_sync import RULE
from tb_gpudiag.wording.quantity import duration, number
from tests.builder import HostThread, TraceBuilder
from tests.rules.stage import cannot_tell, facts_of, figures, finding, healthy, is_clear, one_gap, severity
from tests.with_each import with_each


def _sync_then_python(main: HostThread, at: float, us: float) -> None:
    """Block the host until the GPU has drained at 300 µs, then keep it busy."""
    main.op("aten::item", at=at, us=300 - at)
    main.sync(at=at, us=300 - at)


def test_fires_on_the_gap_after_a_synchronization_and_names_its_kind(tmp_path: Path) -> None:
    found = finding(RULE.check(facts_of(one_gap(_sync_then_python, 40), tmp_path)))
    assert 40_000 <= found.cost_ns <= 46_000  # with the launch and its latency
    assert figures(found)[".item() or float() of a tensor"] == (
        number(1, "synchronization"),
        duration(100_000, "host blocked"),
        duration(found.cost_ns, "GPU idle after"),
    )
    assert "total.item()" in found.fix.code
    assert found.places[0].operator == "aten::item"
    assert found.places[0].file == "train.py"


def test_says_what_the_gpu_waits_for_after_the_synchronization(tmp_path: Path) -> None:
    def act(main: HostThread, at: float, us: float) -> None:
        _sync_then_python(main, at, us)
        main.frame("<built-in function print>", at=301, us=us - 101)

    found = finding(RULE.check(facts_of(one_gap(act, 40), tmp_path)))
    evidence = figures(found)
    assert evidence["Idle during Python between operators"][0] == duration(40_000)
    assert evidence["Idle while writing logs"][0] == duration(39_000)


def test_the_fix_fits_the_kind_of_synchronization(tmp_path: Path) -> None:
    def choose(main: HostThread, at: float, us: float) -> None:
        main.op("aten::index", at=at, us=310 - at).op("aten::nonzero", at=at + 1, us=308 - at)
        main.sync(at=at + 2, us=298 - at)

    def synchronize(main: HostThread, at: float, us: float) -> None:
        main.sync("cudaDeviceSynchronize", at=at, us=300 - at)

    assert "torch.where" in finding(RULE.check(facts_of(one_gap(choose, 40), tmp_path / "1"))).fix.code
    assert "elapsed_time" in finding(RULE.check(facts_of(one_gap(synchronize, 40), tmp_path / "2"))).fix.code


def test_a_synchronization_costs_no_more_than_it_blocked_the_host(tmp_path: Path) -> None:
    # The host is blocked for 100 µs. Without the synchronization it would be 100 µs ahead, and the GPU idle
    # for 100 µs instead of 200.
    found = finding(RULE.check(facts_of(one_gap(_sync_then_python, 200), tmp_path)))
    assert found.cost_ns == 100_000


def test_just_under_the_threshold_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(one_gap(_sync_then_python, 13), tmp_path)))


def test_a_synchronization_with_work_still_queued_costs_nothing(tmp_path: Path) -> None:
    trace = healthy()
    HostThread(trace, trace.recording.host[0].thread).sync(
        "cudaEventSynchronize", at=400, us=200
    )  # an event in mid-queue
    assert is_clear(RULE.check(facts_of(trace, tmp_path)))


def test_a_fix_removes_at_least_what_drained_the_queue_and_at_most_all(
    tmp_path: Path,
) -> None:
    trace = one_gap(_sync_then_python, 40)
    main = next(iter(trace.recording.threads))
    trace.thread(tid=main).sync("cudaEventSynchronize", at=900, us=20)  # the GPU has work queued beyond it
    removable = finding(RULE.check(facts_of(trace, tmp_path))).removable
    assert removable is not None
    assert removable.least is not None
    assert len(removable.least.unblocked) == 1
    assert set(removable.least.unblocked) < set(removable.most.unblocked)


@pytest.mark.parametrize(("operator", "dropped"), [("aten::item", 1), ("aten::to", 0)])
def test_a_fix_removes_the_copy_and_the_wait_after_it(operator: str, dropped: int, tmp_path: Path) -> None:
    """Both are one wait. A value that is not read needs no operator; a tensor still has to be copied."""

    def act(main: HostThread, at: float, us: float) -> None:
        main.op(operator, at=at, us=150)
        main.copy("DtoH", at=at + 1, us=105, runs_at=at + 100, runs_us=2, bytes=4)
        main.sync(at=at + 107, us=40)

    facts = facts_of(one_gap(act, 400), tmp_path)
    removable = finding(RULE.check(facts)).removable
    assert removable is not None
    assert removable.least is not None
    names = [facts.events.names[facts.events.name[i]] for i in removable.least.unblocked]
    assert names == ["cudaMemcpyAsync", "cudaStreamSynchronize"]
    assert len(set(removable.least.dropped) & set(facts.transfers.launch.tolist())) == dropped


def test_reads_on_a_gpu_that_was_not_recorded_are_a_hint(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=())
    main = trace.thread()
    main.step(0, at=0, us=100_000)
    main.frame("train.py(7): log", at=100, us=99_000)
    for at in (1_000, 50_000):
        main.op("aten::item", at=at, us=20_002)
        main.op("aten::_local_scalar_dense", at=at + 1, us=20_000)
    facts = facts_of(trace, tmp_path)
    found = finding(RULE.check(facts))
    assert "40.0% of the main thread's time" in found.title
    assert found.places[0].file == "train.py"
    assert ".item()" in found.fix.code
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.INFO
    assert found.cost_ns == 0


def _copies(us: float, *, call: str = "cudaMemcpyAsync", on_gpu: bool = False) -> TraceBuilder:
    """Two steps of 100 ms, each with a copy, of a job whose kernels were not recorded."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    for at in (0, 100_000):
        main.step(at // 100_000, at=at, us=100_000).frame("train.py(7): send", at=at + 1, us=99_000)
        main.op("aten::to", at=at + 10, us=us, shapes=[[100_000_000]])
        main.op("aten::copy_", at=at + 12, us=us - 5, shapes=[[100_000_000], [100_000_000]])
        main.call(call, at=at + 14, us=us - 10).call("cudaLaunchKernel", at=at + 90_000, us=5)
    if on_gpu:  # else no memory was recorded
        main.alloc(4_096, at=99_500)
    return trace


@pytest.mark.parametrize("on_gpu", [False, True])
def test_copies_that_block_are_a_hint_where_no_kernel_was_recorded(on_gpu: bool, tmp_path: Path) -> None:
    """What they wait for does not show. How long they hold the host does, and what they copy."""
    facts = facts_of(_copies(70_000, on_gpu=on_gpu), tmp_path)
    found = finding(RULE.check(facts))
    assert found.title == "Blocking copy: waiting takes 70.0% of the main thread's time"
    assert figures(found)["aten::to of [[100000000]]"][0] == duration(140_000_000)
    assert found.places[0].file == "train.py"
    assert "non_blocking=True" in found.fix.code
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.INFO


@with_each(("us", "call"), [(900, "cudaMemcpyAsync"), (70_000, "cudaHostAlloc")])
def test_a_copy_that_returns_or_copies_within_the_host_holds_nothing(
    us: float, call: str, tmp_path: Path
) -> None:
    assert cannot_tell(RULE.check(facts_of(_copies(us, call=call), tmp_path)))


@with_each(("waiting", "blocks"), [(20, True), (15, False)])
@with_each("graph", [True, False])
def test_launches_that_wait_for_their_kernel_are_synchronizations(
    waiting: int, tmp_path: Path, *, blocks: bool, graph: bool
) -> None:
    """CUDA_LAUNCH_BLOCKING=1: 16 of 20 are enough, as copies and memsets may return before. Launches of
    graphs do not wait."""
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=2_100 if graph else 2_000)
    if graph:
        main.graph_launch([(f"node_{i}", 2_010 + 2 * i, 2) for i in range(20)], at=2_000, us=5)
    for turn in range(20):
        at = turn * 100.0
        main.launch("gemm", at=at, us=55 if turn < waiting else 5, runs_at=at + 7, runs_us=40)
    facts = facts_of(trace, tmp_path)
    answer = RULE.check(facts)
    if not blocks:
        assert is_clear(answer)
        return
    found = finding(answer)
    assert "CUDA_LAUNCH_BLOCKING" in found.fix.text
    assert figures(found)["Launches that wait for their kernel"][0] == number(
        20 if graph else 19,
        "synchronization",  # nothing is launched after the last one
    )
    saving = with_saving(found, facts, predicted_of(facts)).saving
    assert saving is not None
    assert saving.high_ns > 0.3 * facts.window.duration_ns


def _on_intel(driver: bool) -> TraceBuilder:
    """Build a step with launches as Intel's recorder writes them, with the driver's calls or without."""
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=100, us=1000)
    for i in range(10):
        at = 100 + i * 100
        main.op("aten::item", at=at, us=95)
        main.launch("gemm", at=at + 5, us=10, runs_at=at + 20, runs_us=40, call="urEnqueueKernelLaunch")
        if driver:
            launch = trace.recording.host[-1].correlation
            main.call("zeCommandListAppendLaunchKernel", at=at + 6, us=8, correlation=launch)
            main.call("zeEventHostSynchronize", at=at + 20, us=42)
    return trace


def test_waits_that_intels_recorder_left_out_are_no_all_clear(tmp_path: Path) -> None:
    assert cannot_tell(RULE.check(facts_of(_on_intel(driver=False), tmp_path / "without")))
    facts = facts_of(_on_intel(driver=True), tmp_path / "with")
    assert finding(RULE.check(facts)).title.startswith("Synchronizations leave the GPU idle")
    assert len(np.unique(facts.work.launch)) == 10  # the driver's call in it is no second launch
    assert not len(facts.lost_work.lost)


@pytest.mark.parametrize(("later_us", "steps", "hint"), [(90, 0, True), (110, 0, False), (90, 1, False)])
def test_without_steps_a_single_synchronization_is_none_of_a_loops(
    later_us: float, steps: int, tmp_path: Path, *, hint: bool
) -> None:
    """The host sets something up for 100 µs after one, and for half as long after each of two others."""
    trace = TraceBuilder()
    main = trace.thread()
    at = 0.0
    for gap_us in (100, later_us / 2, later_us / 2, 0):
        main.launch("gemm", at=at, us=5, runs_at=at + 10, runs_us=400)
        main.op("aten::item", at=at + 10, us=400).sync(at=at + 10, us=400)
        at += 410 + gap_us
    for step in range(steps):
        main.step(step, at=0, us=at)
    facts = facts_of(trace, tmp_path)
    found = finding(RULE.check(facts))
    assert severity(RULE, found, facts) == (Severity.INFO if hint else Severity.WARNING)
    assert ("nothing shows that it recurs" in found.summary) == hint
