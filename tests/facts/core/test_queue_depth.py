"""Launch queues: every depth counted a second way, both ends of the recording, and queues that are full."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tb_gpudiag.errors import TraceError
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.queue_depth import QUEUE_LIMIT, Queue
from tb_gpudiag.facts.core.steps import Window
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.trace.events import NONE
from tests.builder import HostThread, TraceBuilder
from tests.facts import facts_of
from tests.facts.core.test_idle import stories
from tests.real_traces import FILES, real_facts

US = 1000


def depths(queue: Queue) -> list[tuple[float, int]]:
    return list(zip((queue.depth.time_ns / US).tolist(), queue.depth.depth.tolist(), strict=True))


def assert_queue(queue: Queue, window: Window) -> None:
    """Never negative, empty in the end, and its area is all the time that its launches waited."""
    time, depth = queue.depth
    assert (queue.begun_ns >= queue.issued_ns).all()
    assert (depth >= 0).all()
    assert (np.diff(time) > 0).all()
    assert not len(depth) or depth[-1] == 0
    if not window.duration_ns:
        return
    figures = queue.figures(window)
    waited = np.clip(queue.begun_ns, window.start_ns, window.end_ns)
    waited = waited - np.clip(queue.issued_ns, window.start_ns, window.end_ns)
    assert figures.mean * window.duration_ns == pytest.approx(waited.sum())
    assert 0 <= figures.empty_share <= 1
    assert 0 <= figures.median <= figures.most


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(stories())
def test_every_depth_is_the_number_of_launches_that_wait(story: TraceBuilder) -> None:
    facts = facts_of(story)
    launches: set[int] = set()
    for queue in facts.queues:
        assert_queue(queue, facts.window)
        assert_depth_counts(queue)
        assert_figures_count(queue, facts.window)
        launches |= linked_calls(queue, facts)
    assert launches == set(facts.work.launch[facts.work.launch != NONE].tolist())
    assert sum(int((queue.call != NONE).sum()) for queue in facts.queues) == len(launches)


def waiting_at(queue: Queue, time: int) -> int:
    """Count the launches of the queue that wait at this time, one by one."""
    pairs = zip(queue.issued_ns.tolist(), queue.begun_ns.tolist(), strict=True)
    return sum(issued <= time < begun for issued, begun in pairs)


def assert_depth_counts(queue: Queue) -> None:
    for time, depth in zip(queue.depth.time_ns.tolist(), queue.depth.depth.tolist(), strict=True):
        assert depth == waiting_at(queue, time)


def assert_figures_count(queue: Queue, window: Window) -> None:
    """Stories last whole µs, so counting at each µs of the window is exact."""
    if not 0 < window.duration_ns < 2_000 * US:
        return
    counts = sorted(waiting_at(queue, time) for time in range(window.start_ns, window.end_ns, US))
    figures = queue.figures(window)
    assert figures.most == counts[-1]
    assert figures.median == counts[(len(counts) - 1) // 2]
    assert figures.empty_share == pytest.approx(counts.count(0) / len(counts))


def linked_calls(queue: Queue, facts: Facts) -> set[int]:
    """The launch calls of the queue, each with its own times; work without one waits from the start."""
    events, work = facts.events, facts.work
    calls = queue.call.tolist()
    for call, issued, begun in zip(calls, queue.issued_ns.tolist(), queue.begun_ns.tolist(), strict=True):
        if call == NONE:
            assert issued == min(facts.recording.start_ns, begun)
        else:
            assert issued == min(events.end_ns[call], begun)
            assert begun == events.start_ns[work.event[work.launch == call]].min()
    return set(calls) - {NONE}


@pytest.mark.parametrize("file", FILES)
def test_no_queue_of_a_real_trace_is_ever_shorter_than_nothing(shared_traces: Path, file: str) -> None:
    try:
        facts = real_facts(file)
    except TraceError as error:
        pytest.fail(f"{file} could not be read: {error}")
    for queue in facts.queues:
        assert_queue(queue, facts.window)


def test_the_depth_over_time_of_each_stream() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=150)
    main.launch("a", at=0, us=5, runs_at=10, runs_us=40)
    main.launch("b", at=10, us=5, runs_at=50, runs_us=10)
    main.launch("c", at=20, us=5, runs_at=60, runs_us=10)
    main.launch("other", at=30, us=5, runs_at=32, runs_us=10, stream=20)  # begins inside its call
    facts = facts_of(trace)
    first, second = facts.queues
    assert (first.device, first.stream, second.stream) == (0, 7, 20)
    assert depths(first) == [(5, 1), (10, 0), (15, 1), (25, 2), (50, 1), (60, 0)]
    assert depths(second) == []
    figures = first.figures(facts.window)
    assert (figures.mean, figures.median, figures.most) == (0.5, 0, 2)
    assert figures.empty_share == pytest.approx(2 / 3)
    assert first.figures(Window(10 * US, 60 * US)).median == 1
    assert second.figures(facts.window).empty_share == 1


def test_a_graph_is_one_launch_on_the_stream_of_its_first_work() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.graph_launch([("g1", 50, 10), ("g2", 60, 10), ("g3", 70, 10)], at=10, us=10)
    main.op("aten::later", at=200, us=10)
    (queue,) = facts_of(trace).queues
    assert len(queue.call) == 1
    assert queue.begun_ns[0] - queue.issued_ns[0] == 30 * US


def test_work_from_before_the_recording_waits_from_its_beginning() -> None:
    trace = TraceBuilder()
    trace.kernel("early", at=10, us=10).kernel("early", at=30, us=10)
    trace.thread().op("aten::mm", at=0, us=60).launch("own", at=20, us=10, runs_at=40, runs_us=10)
    trace.kernel("nobody's", at=50, us=10)  # launched after `own`, and not recorded
    (queue,) = facts_of(trace).queues
    # At 30 µs one begins, and the next one is launched.
    assert depths(queue) == [(0, 2), (10, 1), (40, 0)]
    assert queue.not_launched_here == 2


def test_a_stream_without_any_launch_has_no_queue() -> None:
    trace = TraceBuilder()
    trace.kernel("a", at=10, us=10).kernel("b", at=90, us=10)
    assert facts_of(trace).queues == []


def full_queue(*, call_us: float = 200, before: int = QUEUE_LIMIT) -> TraceBuilder:
    """The host launches `before` kernels in calls of 2 µs; the GPU takes 100 µs for each. Then three calls
    that each return 1 µs after a kernel has begun, `call_us` long or longer."""
    trace = TraceBuilder()
    main = trace.thread()
    for i in range(before):
        main.launch("gemm", at=3 * i, us=2, runs_at=10 + 100 * i, runs_us=100)
    free = 10 + 100 * before
    at = 3.0 * before
    for i in range(3):
        returns = 11 + 100 * (-(-(at + call_us) // 100))
        main.launch("gemm", at=at, us=returns - at, runs_at=free + 100 * i, runs_us=100)
        at = returns + 1
    return trace


def test_calls_that_wait_for_room_in_a_full_queue_are_told_apart() -> None:
    facts = facts_of(full_queue())
    calls, waited = facts.host_time.full_queue
    assert len(calls) == 3
    assert (facts.events.duration_ns[calls] - waited == 2 * US).all()


def test_a_long_call_beside_a_short_queue_did_not_wait_for_room() -> None:
    assert not len(facts_of(full_queue(before=QUEUE_LIMIT // 2 - 5)).host_time.full_queue.call)


def test_a_long_call_in_which_no_room_was_made_did_not_wait_for_it() -> None:
    trace = full_queue(before=QUEUE_LIMIT)
    main = trace.thread()
    # Between two kernels' ends, at 3,610 and 3,710 µs.
    main.launch("gemm", at=3_615, us=90, runs_at=200_000, runs_us=1)
    facts = facts_of(trace)
    lengths = facts.events.duration_ns[facts.host_time.full_queue.call]
    assert 90 * US not in lengths.tolist()
    assert len(lengths) == 3


def test_waiting_for_room_in_one_gpus_queue_is_no_launching_for_another() -> None:
    trace = full_queue()
    main = HostThread(trace, trace.recording.host[0].thread)
    trace.thread("other").launch("early", at=3_000, us=5, runs_at=3_010, runs_us=62, device=1)
    at = max(span.end_ns for span in trace.recording.host) / US
    main.launch("late", at=at + 1, us=5, runs_at=at + 8, runs_us=10, device=1)
    facts = facts_of(trace)
    (idle,) = (device for device in facts.devices if device.id == 1)
    by_cause = idle.ledger.by_cause(idle.span)
    assert by_cause[Cause.LAUNCH] == 5 * US
    assert by_cause[Cause.QUEUED] == sum(facts.events.duration_ns[facts.host_time.full_queue.call])


def test_a_call_that_waits_for_the_gpu_anyway_is_no_full_queue() -> None:
    trace = full_queue()
    trace.thread().copy("DtoH", at=4_000, us=110_000, runs_at=110_000, runs_us=10, bytes=4)
    facts = facts_of(trace)
    assert len(facts.host_time.full_queue.call) == 3
