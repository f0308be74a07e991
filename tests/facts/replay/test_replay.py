"""The replay: unchanged, it gives the recorded times; changed, it gives those that the trace implies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tb_gpudiag.errors import TraceError
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.intervals import Intervals, union
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.replay.replay import Removal, Shorter
from tb_gpudiag.rules.shared.slowed_recording import trusted_replay
from tests.builder import TraceBuilder
from tests.conftest import SHARED_TRACES
from tests.facts import facts_of
from tests.facts.any_traces import any_traces
from tests.real_traces import first_in, real_facts

US = 1000
STEPPED = sorted(
    {
        p.relative_to(SHARED_TRACES).parts[0]
        for p in SHARED_TRACES.rglob("*.json*")
        if not p.relative_to(SHARED_TRACES).parts[0].startswith(("cpu", "a100_launches"))
    }
)


def removing(facts: Facts, *causes: Cause) -> Removal:
    spans = facts.main_thread_spans
    some = [cause in causes for cause in spans.cause.tolist()]
    return Removal(union(spans.start_ns[some], spans.end_ns[some]))


def two_steps(load_us: float) -> TraceBuilder:
    """Build two steps: a batch, then ten launches 10 µs apart of kernels of 50 µs, far ahead of the GPU."""
    trace = TraceBuilder()
    main = trace.thread()
    length = load_us + 600
    free = 0.0
    for number in range(2):
        at = number * length
        main.step(number, at=at, us=length)
        if load_us:
            main.loader(at=at, us=load_us)
        for i in range(10):
            issued = at + load_us + 10 * i
            begins = max(issued + 8, free)
            main.launch("gemm", at=issued, us=5, runs_at=begins, runs_us=50)
            free = begins + 50
        main.sync(at=at + load_us + 100, us=free - (at + load_us + 100))
    return trace


def test_removing_the_wait_for_data_shortens_the_steps_by_it() -> None:
    facts = facts_of(two_steps(400))
    assert facts.replay.unchanged.step_ns.tolist() == facts.replay.measured.step_ns.tolist()
    changed = facts.replay.run(removing(facts, Cause.INPUT))
    assert facts.replay.measured.window_ns - changed.window_ns == 2 * 400 * US


def test_removing_host_time_before_the_steps_saves_nothing_in_them() -> None:
    """Their work starts sooner, and ends sooner by as much."""
    trace = TraceBuilder()
    main = trace.thread()
    for at in (0, 400):
        main.launch("first", at=at, us=5, runs_at=at + 10, runs_us=40)
    for number in range(2):
        at = 500 + 300 * number
        main.step(number, at=at, us=300)
        main.launch("gemm", at=at + 100, us=5, runs_at=at + 110, runs_us=150)
        main.sync(at=at + 110, us=155)
    facts = facts_of(trace)
    before = Removal(Intervals(np.array([5_000]), np.array([400_000])))
    assert facts.replay.run(before).step_ns.tolist() == facts.replay.unchanged.step_ns.tolist()


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(any_traces(), st.integers(1, 200))
def test_no_host_time_shortens_the_window_by_more_than_itself_or_hides_the_work(
    trace: TraceBuilder, us: int
) -> None:
    facts = facts_of(trace)
    assume(facts.device is not None and facts.window.duration_ns and trusted_replay(facts))
    removal, replay = Removal(Intervals(np.array([0]), np.array([us * US]))), facts.replay
    changed_ns = replay.run(removal).window_ns
    assert replay.unchanged.window_ns - changed_ns <= us * US
    assert changed_ns >= replay.shortest_ns(removal)


def test_removing_hidden_host_time_saves_nothing() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=1070)
    main.launch("long", at=0, us=5, runs_at=10, runs_us=1000)
    main.frame("train.py(3): log", at=10, us=500)
    main.launch("next", at=520, us=5, runs_at=1011, runs_us=50)
    main.sync(at=530, us=540)
    facts = facts_of(trace)
    changed = facts.replay.run(removing(facts, Cause.PYTHON))
    assert facts.replay.measured.window_ns - changed.window_ns <= 1 * US


def test_removing_a_wait_lets_the_host_run_ahead() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=630)
    main.launch("a", at=0, us=5, runs_at=10, runs_us=200)
    main.sync(at=20, us=195)  # returns 5 µs after a's end
    main.op("aten::host_work", at=215, us=100)
    main.launch("b", at=315, us=5, runs_at=325, runs_us=300)
    main.sync(at=330, us=300)
    facts = facts_of(trace)
    assert facts.device is not None
    [waited] = facts.device.ledger.gaps.blocked_in[facts.device.ledger.gaps.blocked_ns > 0].tolist()
    changed = facts.replay.run(Removal(unblocked=(waited,)))
    # b follows a: the idle time between them, 210 to 325 µs, is saved except for the turnaround.
    assert 100 * US <= facts.replay.measured.window_ns - changed.window_ns <= 115 * US


def test_work_that_ends_by_chance_during_a_short_wait_is_not_its_target() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=1300)
    main.launch("early", at=0, us=5, runs_at=10, runs_us=50)
    main.call("cudaEventRecord", at=6, us=1)
    main.launch("late", at=10, us=5, runs_at=65, runs_us=436)  # until 501
    main.frame("train.py(3): log", at=20, us=480)
    main.sync("cudaEventSynchronize", at=500, us=2)
    main.frame("train.py(4): prepare", at=502, us=600)
    main.launch("next", at=1102, us=5, runs_at=1112, runs_us=180)
    facts = facts_of(trace)
    change = Removal(Intervals(np.array([20 * US]), np.array([500 * US])))
    saved_ns = facts.replay.measured.window_ns - facts.replay.run(change).window_ns
    assert saved_ns == (500 - 60) * US


@pytest.mark.parametrize("recorded", [True, False])
def test_a_wait_for_an_event_that_had_happened_targets_the_work_before_it(recorded: bool) -> None:
    """Without the Python, the host reaches the wait while `late` runs. The event was recorded before
    `late`."""
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=1000)
    main.launch("early", at=0, us=5, runs_at=10, runs_us=50)
    if recorded:
        main.call("cudaEventRecord", at=6, us=1)
    main.launch("late", at=10, us=5, runs_at=65, runs_us=300)
    main.frame("train.py(3): log", at=20, us=480)
    main.sync("cudaEventSynchronize", at=500, us=2)
    main.frame("train.py(4): prepare", at=502, us=300)
    main.launch("next", at=802, us=5, runs_at=812, runs_us=180)
    facts = facts_of(trace)
    change = Removal(Intervals(np.array([20 * US]), np.array([500 * US])))
    saved_ns = facts.replay.measured.window_ns - facts.replay.run(change).window_ns
    # The host goes on when `early` has ended (at 60 µs, not at 20), or else when `late` has (at 365).
    waited_until = 60 if recorded else 365
    assert saved_ns == (500 - waited_until) * US


def test_work_of_another_stream_is_still_waited_for() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=1000)
    main.frame("train.py(3): slow", at=0, us=300)
    main.launch("compute", at=300, us=5, runs_at=310, runs_us=200)
    main.launch("ncclDevKernel_AllReduce", at=310, us=5, runs_at=513, runs_us=300, stream=20)
    main.sync(at=320, us=500)
    facts = facts_of(trace)
    changed = facts.replay.run(removing(facts, Cause.PYTHON))
    assert facts.replay.measured.window_ns - changed.window_ns == pytest.approx(300 * US, abs=180 * US)
    assert changed.window_ns >= 500 * US


def test_work_that_vanishes_takes_no_time_on_the_gpu() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=400)
    for number, name in enumerate(("first", "small", "last")):
        main.launch(name, at=10 * number, us=5, runs_at=10 + 101 * number, runs_us=100)
    main.sync(at=40, us=276)
    facts = facts_of(trace)
    small = int(facts.launches.costs.event[1])
    change = Removal(dropped=(small,))
    saved_ns = facts.replay.unchanged.window_ns - facts.replay.run(change).window_ns
    assert saved_ns == 101 * US  # with the turnaround before it


def half_as_long(facts: Facts) -> Removal:
    event = facts.work.event
    return Removal(shorter=Shorter(event, np.full(len(event), 0.5)))


def test_shorter_kernels_save_their_time_where_the_gpu_is_the_limit() -> None:
    facts = facts_of(two_steps(0))
    saved_ns = facts.replay.unchanged.window_ns - facts.replay.run(half_as_long(facts)).window_ns
    assert saved_ns == pytest.approx(2 * 10 * 25 * US, abs=30 * US)


def test_shorter_kernels_save_nothing_where_the_gpu_waits_for_the_host() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=1_000)
    for i in range(10):
        main.launch("gemm", at=100 * i, us=5, runs_at=100 * i + 10, runs_us=40)
    main.launch("gemm", at=990, us=5, runs_at=1_000, runs_us=1)
    facts = facts_of(trace)
    saved_ns = facts.replay.unchanged.window_ns - facts.replay.run(half_as_long(facts)).window_ns
    assert saved_ns <= US
    assert facts.replay.shortest_ns(half_as_long(facts)) == pytest.approx(200 * US, abs=2 * US)


def test_two_changes_of_one_kernel_never_remove_it_twice() -> None:
    facts = facts_of(two_steps(0))
    twice = facts.replay.run(half_as_long(facts), half_as_long(facts)).window_ns
    assert 0 < twice < facts.replay.run(half_as_long(facts)).window_ns


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(any_traces())
def test_any_trace_can_be_replayed(trace: TraceBuilder) -> None:
    facts = facts_of(trace)
    if not facts.window.duration_ns:
        return
    replay = facts.replay
    assert len(replay.run(removing(facts, Cause.PYTHON, Cause.DISPATCH)).step_ns) == len(
        replay.measured.step_ns
    )


@pytest.mark.parametrize("folder", STEPPED)
def test_the_unchanged_replay_gives_the_recorded_times(shared_traces: Path, folder: str) -> None:
    for file in sorted((shared_traces / folder).rglob("*.json*")):
        try:
            replay = real_facts(file).replay
        except TraceError as error:
            pytest.fail(str(error))
        assert replay.unchanged.window_ns == pytest.approx(replay.measured.window_ns, rel=0.01)


def test_resnet_without_the_wait_for_data_takes_as_long_as_with_workers(shared_traces: Path) -> None:
    """The steady steps of the real run with 4 workers took 124 to 126 ms."""
    facts = first_in("v100_resnet50_workers0")
    predicted = facts.replay.run(removing(facts, Cause.INPUT)).window_ns / len(facts.steps)
    assert predicted == pytest.approx(125e6, rel=0.10)
