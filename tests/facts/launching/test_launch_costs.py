"""Launch costs: the host's time before each launch computed a second way, and hotspots that add up to all of
it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tb_gpudiag.arrays import NONE, UInt8
from tb_gpudiag.errors import TraceError
from tb_gpudiag.facts.core.causes import BETWEEN_CALLS, Cause
from tb_gpudiag.facts.core.intervals import MOST_RANGES
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.launching.launch_costs import HOTSPOT_KINDS
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES
from tests.builder import TraceBuilder
from tests.facts import facts_of
from tests.facts.any_traces import any_traces
from tests.facts.core.test_queue_depth import full_queue
from tests.real_traces import FILES, real_facts

US = 1000
ISSUING = (Cause.DISPATCH, Cause.LAUNCH, Cause.LATENCY)


def costs_by_kernel(facts: Facts) -> dict[str, tuple[int, int, int]]:
    """Return kernel -> µs in the call, in dispatch and in Python."""
    costs, events = facts.launches.costs, facts.events
    names = [events.names[i] for i in events.name[costs.work]]
    columns = (costs.host_ns, costs.dispatch_ns, costs.python_ns)
    return {
        name: (call // US, dispatch // US, python // US)
        for name, call, dispatch, python in zip(names, *(c.tolist() for c in columns), strict=True)
    }


def test_host_time_before_each_launch_is_what_its_thread_did() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=500)
    main.frame("train.py(3): loop", at=10, us=480)
    main.op("aten::first", at=20, us=40).launch("first", at=40, us=10, runs_at=60, runs_us=10)
    main.op("aten::second", at=100, us=60).call("cudaMalloc", at=105, us=30)
    main.launch("second", at=140, us=10, runs_at=160, runs_us=10)
    main.loader(at=170, us=100)
    main.launch("third", at=280, us=10, runs_at=300, runs_us=10)
    assert costs_by_kernel(facts_of(trace)) == {
        # Before the frame nothing is recorded on the main thread: the user's own code as well.
        "first": (10, 20, 20),
        # The tail of aten::first, 40 µs of the loop, and what aten::second did next to the allocation.
        "second": (10, 10 + 10, 40),
        # The tail of aten::second; the loader's time belongs to no launch.
        "third": (10, 10, 20),
    }


def test_a_thread_that_waits_for_another_spends_nothing_on_its_launches() -> None:
    trace = TraceBuilder()
    main, engine = trace.thread(), trace.thread("autograd")
    main.step(0, at=0, us=500)
    main.op("aten::mm", at=0, us=100).launch("forward", at=50, us=10, runs_at=70, runs_us=10)
    engine.op("MmBackward0", at=200, us=100).launch("backward", at=250, us=10, runs_at=270, runs_us=10)
    main.op("aten::add_", at=350, us=50).launch("optimizer", at=380, us=10, runs_at=400, runs_us=10)
    assert costs_by_kernel(facts_of(trace)) == {
        "forward": (10, 50, 0),
        "backward": (10, 50, 0),
        # From 100 to 200 and from 300 to 350 µs Python; the rest is the wait for autograd.
        "optimizer": (10, 40 + 30, 150),
    }


Piece = tuple[int, int, int, Cause | None]
"""(start, end, innermost event or NONE, cause or None if it is undecided)"""


def pieces_of(facts: Facts, thread: int) -> list[Piece]:
    """Return what a thread did, piece by piece."""
    if thread == facts.main_thread:
        spans = facts.main_thread_spans
        columns = (spans.start_ns, spans.end_ns, spans.event, spans.cause, spans.thread)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [(start, end, event, Cause(cause)) for start, end, event, cause, own in rows if own == thread]
    activity, causes = facts.host.activities.get(thread), facts.host.cause
    if activity is None:
        return []
    times = zip(activity.start_ns.tolist(), activity.end_ns.tolist(), activity.event.tolist(), strict=True)
    return [(start, end, event, cause_of(causes, event)) for start, end, event in times]


def cause_of(causes: UInt8, event: int) -> Cause | None:
    return Cause(int(causes[event])) if event != NONE and causes[event] < len(Cause) else None


def free_from(facts: Facts, call: int) -> int:
    """Return the end of the thread's launch before this one, or the window's start."""
    events, work = facts.events, facts.work
    launches = [c for c in set(work.launch.tolist()) if c != NONE and events.thread[c] == events.thread[call]]
    before = [c for c in launches if (events.start_ns[c], c) < (events.start_ns[call], call)]
    return max([facts.host_window.start_ns, *(int(events.end_ns[c]) for c in before)])


def walked(facts: Facts, call: int) -> tuple[int, int]:
    """Compute (dispatch, Python) ns before one launch call by walking over what its thread did since the
    launch before."""
    events, free, called = facts.events, free_from(facts, call), int(facts.events.start_ns[call])
    dispatch = python = 0
    for start, end, event, cause in pieces_of(facts, int(events.thread[call])):
        length = min(end, called) - max(start, free)
        if length <= 0 or (event != NONE and events.category[event] in CALL_CATEGORIES):
            continue
        in_operator = event != NONE and facts.host.operator[event] != NONE
        if in_operator and cause in (None, Cause.DISPATCH, Cause.PYTHON, Cause.COLLECTIVE):
            dispatch += length
        elif not in_operator and cause in BETWEEN_CALLS:
            python += length
    return dispatch, python


def assert_costs(facts: Facts) -> None:
    """Check that each thread's time for launches fits into the time until its last one, that the idle time is
    the ledgers', and that the hotspots of each kind add up to all costs."""
    costs, events, window = facts.launches.costs, facts.events, facts.window
    for column in (costs.dispatch_ns, costs.python_ns, costs.full_queue_ns, costs.idle_ns, costs.kernel_ns):
        assert (column >= 0).all()
    assert (costs.full_queue_ns <= costs.host_ns).all()
    for thread in np.unique(events.thread[costs.event]).tolist():
        own = costs.event[events.thread[costs.event] == thread]
        on_the_way = (costs.dispatch_ns + costs.python_ns)[events.thread[costs.event] == thread]
        assert on_the_way.sum() <= max(0, events.start_ns[own].max() - facts.host_window.start_ns)
    idle = 0
    for device in facts.devices:
        ledger = device.ledger
        launch, inside = ledger.gaps.launch[ledger.gap], ledger.inside(window)
        caused = np.isin(ledger.cause, np.array(ISSUING, np.uint8)) & np.isin(launch, costs.event)
        idle += int(inside[caused].sum())
    assert costs.idle_ns.sum() == idle
    some = costs.idle_ns > 0
    assert (costs.idle_end_ns[some] - costs.idle_start_ns[some] >= costs.idle_ns[some]).all()
    for kind in HOTSPOT_KINDS:
        spots = facts.launches.hotspots[kind]
        assert sum(spot.launches for spot in spots) == len(costs)
        for figure, column in (
            ("host_ns", costs.host_ns),
            ("dispatch_ns", costs.dispatch_ns),
            ("python_ns", costs.python_ns),
            ("kernel_ns", costs.kernel_ns),
            ("idle_ns", costs.idle_ns),
            ("full_queue_ns", costs.full_queue_ns),
        ):
            assert sum(getattr(spot, figure) for spot in spots) == column.sum()
        for spot in spots:
            ranges = spot.ranges
            assert 0 < len(ranges.start_ns) == len(ranges.end_ns) == len(ranges.device) <= MOST_RANGES
            assert (ranges.end_ns >= ranges.start_ns).all()


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(any_traces())
def test_host_time_of_every_launch_equals_a_walk_over_its_thread(trace: TraceBuilder) -> None:
    facts = facts_of(trace)
    assert_costs(facts)
    costs = facts.launches.costs
    for call, dispatch, python in zip(costs.event, costs.dispatch_ns, costs.python_ns, strict=True):
        assert walked(facts, int(call)) == (dispatch, python)


@pytest.mark.parametrize("file", FILES)
def test_nothing_is_lost_or_counted_twice_on_real_traces(shared_traces: Path, file: str) -> None:
    try:
        facts = real_facts(file)
    except TraceError as error:
        pytest.fail(f"{file} could not be read: {error}")
    assert_costs(facts)


def test_blocking_on_a_full_queue_is_counted() -> None:
    (spot,) = facts_of(full_queue()).launches.hotspots["kernel"]
    assert spot.full_queue_launches == 3
    assert 3 * 200 * US <= spot.full_queue_ns < spot.host_ns


def test_ranges_of_a_hotspot_are_its_longest_idle_times() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=2000)
    at = 0.0
    for number in range(8):
        at += 20 + 10 * number
        main.op("aten::add", at=at, us=20 + 10 * number)
        main.launch("add", at=at + 15 + 10 * number, us=3, runs_at=at + 20 + 10 * number, runs_us=1)
        at += 21 + 10 * number
    facts = facts_of(trace)
    (spot,) = facts.launches.hotspots["operator"]
    start, end, device = spot.ranges
    assert len(start) == MOST_RANGES
    assert (np.diff(end - start) < 0).all()
    assert int(end[0] - start[0]) == 90 * US  # of aten::add's last call, until its kernel
    assert device.tolist() == [0] * MOST_RANGES
    assert spot.idle_ns == sum(20 + 10 * number for number in range(8)) * US


def test_without_idle_time_the_ranges_are_the_longest_calls() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.launch("long", at=0, us=5, runs_at=10, runs_us=990)
    for number, call_us in enumerate([5, 9, 7, 6, 8, 4, 3]):
        main.launch("short", at=50 + 20 * number, us=call_us, runs_at=1000 + 10 * number, runs_us=10)
    (spot,) = [spot for spot in facts_of(trace).launches.hotspots["kernel"] if spot.key == "short"]
    assert spot.idle_ns == 0
    lengths = (spot.ranges.end_ns - spot.ranges.start_ns) // US
    assert lengths.tolist() == [9, 8, 7, 6, 5]
    assert spot.ranges.start_ns.tolist() == [70 * US, 130 * US, 90 * US, 110 * US, 50 * US]


def test_a_thread_whose_calls_all_take_no_time_has_no_costs_of_its_own() -> None:
    trace = TraceBuilder()
    trace.thread().launch("a", at=0, us=5, runs_at=6, runs_us=10)
    trace.thread(tid=99).launch("b", at=30, us=0, runs_at=40, runs_us=10)
    assert costs_by_kernel(facts_of(trace))["b"][:2] == (0, 0)


def test_work_in_a_window_without_steps_brings_its_launch_along() -> None:
    """The GPU first works off what was launched before the recording. The window begins after that, with work
    whose launch was earlier."""
    trace = TraceBuilder()
    main = trace.thread()
    main.launch("gemm", at=0, us=5, runs_at=5_000, runs_us=3_000)
    main.launch("next", at=20, us=5, runs_at=8_001, runs_us=3_000)
    facts = facts_of(trace)
    assert facts.window.start_ns == 5_000 * US
    assert len(facts.launches.costs) == 2
    assert sum(hotspot.launches for hotspot in facts.launches.hotspots["operator"]) == 2


def test_a_launch_belongs_to_the_step_in_which_it_begins() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.launch("before", at=0, us=5, runs_at=120, runs_us=20)
    main.step(0, at=100, us=100)
    main.launch("inside", at=110, us=5, runs_at=141, runs_us=20)
    assert set(costs_by_kernel(facts_of(trace))) == {"inside"}
