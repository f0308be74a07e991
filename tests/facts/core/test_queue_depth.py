"""Launch queues: depths counted a second way, both ends of the recording, and full queues."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tb_gpudiag.arrays import NONE
from tb_gpudiag.errors import TraceError
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.launches import QUEUE_LIMIT
from tb_gpudiag.facts.core.queue_depth import Queue
from tb_gpudiag.facts.facts import Facts
from tests.builder import HostThread, TraceBuilder
from tests.facts import facts_of
from tests.facts.any_traces import any_traces
from tests.real_traces import FILES, real_facts

US = 1000


def depths(queue: Queue) -> list[tuple[float, int]]:
    return list(zip((queue.depth.time_ns / US).tolist(), queue.depth.depth.tolist(), strict=True))


def assert_queue(queue: Queue) -> None:
    """Check that the depth is never negative and 0 at the end, and that its area is the time that launches
    waited."""
    time, depth = queue.depth
    assert (queue.begun_ns >= queue.issued_ns).all()
    assert (depth >= 0).all()
    assert (np.diff(time) > 0).all()
    assert not len(depth) or depth[-1] == 0
    assert (np.diff(time) * depth[:-1]).sum() == (queue.begun_ns - queue.issued_ns).sum()


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(any_traces())
def test_depths_and_times_agree_with_a_count_of_the_launches_that_wait(trace: TraceBuilder) -> None:
    facts = facts_of(trace)
    for queue in facts.launches.queues:
        assert_queue(queue)
        assert_depths(queue)
        assert_times(facts, queue)
    in_queues = [int(call) for queue in facts.launches.queues for call in queue.call if call != NONE]
    assert sorted(in_queues) == np.unique(facts.work.launch[facts.work.launch != NONE]).tolist()


def waits(queue: Queue) -> list[tuple[int, int]]:
    """Return (issued, begun) of each launch."""
    return list(zip(queue.issued_ns.tolist(), queue.begun_ns.tolist(), strict=True))


def assert_depths(queue: Queue) -> None:
    for time, depth in zip(queue.depth.time_ns.tolist(), queue.depth.depth.tolist(), strict=True):
        assert depth == sum(issued <= time < begun for issued, begun in waits(queue))


def assert_times(facts: Facts, queue: Queue) -> None:
    events, work = facts.events, facts.work
    for call, (issued, begun) in zip(queue.call.tolist(), waits(queue), strict=True):
        if call == NONE:
            assert issued == min(facts.recording.start_ns, begun)
        else:
            assert issued == min(events.end_ns[call], begun)
            assert begun == events.start_ns[work.event[work.launch == call]].min()


@pytest.mark.parametrize("file", FILES)
def test_no_queue_of_a_real_trace_has_a_negative_depth(shared_traces: Path, file: str) -> None:
    try:
        facts = real_facts(file)
    except TraceError as error:
        pytest.fail(f"{file} could not be read: {error}")
    for queue in facts.launches.queues:
        assert_queue(queue)


def test_the_depth_over_time_of_each_stream() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=150)
    main.launch("a", at=0, us=5, runs_at=10, runs_us=40)
    main.launch("b", at=10, us=5, runs_at=50, runs_us=10)
    main.launch("c", at=20, us=5, runs_at=60, runs_us=10)
    main.launch("other", at=30, us=5, runs_at=32, runs_us=10, stream=20)  # begins inside its call
    facts = facts_of(trace)
    first, second = facts.launches.queues
    assert (first.device, first.stream, second.stream) == (0, 7, 20)
    assert depths(first) == [(5, 1), (10, 0), (15, 1), (25, 2), (50, 1), (60, 0)]
    assert depths(second) == []


def test_a_graph_is_one_launch_on_the_stream_of_its_first_work() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.graph_launch([("g1", 50, 10), ("g2", 60, 10), ("g3", 70, 10)], at=10, us=10)
    main.op("aten::later", at=200, us=10)
    (queue,) = facts_of(trace).launches.queues
    assert len(queue.call) == 1
    assert queue.begun_ns[0] - queue.issued_ns[0] == 30 * US


def test_work_from_before_the_recording_waits_from_its_beginning() -> None:
    trace = TraceBuilder()
    trace.kernel("early", at=10, us=10).kernel("early", at=30, us=10)
    trace.thread().op("aten::mm", at=0, us=60).launch("own", at=20, us=10, runs_at=40, runs_us=10)
    trace.kernel("unlinked", at=50, us=10)  # launched after `own`, and not recorded
    (queue,) = facts_of(trace).launches.queues
    # At 30 µs one work begins and the next one is launched.
    assert depths(queue) == [(0, 2), (10, 1), (40, 0)]
    assert (queue.call == NONE).sum() == 2


def test_a_stream_without_any_launch_has_no_queue() -> None:
    trace = TraceBuilder()
    trace.kernel("a", at=10, us=10).kernel("b", at=90, us=10)
    assert facts_of(trace).launches.queues == []


def full_queue(*, call_us: float = 200, before: int = QUEUE_LIMIT) -> TraceBuilder:
    """Launch `before` kernels in calls of 2 µs, which take the GPU 100 µs each. Then launch three in calls of
    at least `call_us` that return 1 µs after a kernel has begun."""
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


def test_calls_that_block_on_a_full_queue_are_found() -> None:
    facts = facts_of(full_queue())
    calls, waited = facts.host_time.full_queue
    assert len(calls) == 3
    assert (facts.events.duration_ns[calls] - waited == 2 * US).all()


@pytest.mark.slow
def test_a_graph_of_many_nodes_does_not_fill_the_queue() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for i in range(4):
        runs_at = 10_000 * i
        main.launch("copy", at=4_000 * i, us=3, runs_at=runs_at + 10, runs_us=1)
        main.launch("copy", at=4_000 * i + 4, us=3, runs_at=runs_at + 12, runs_us=1)
        nodes = [("node", runs_at + 20 + 4 * n, 3) for n in range(2 * QUEUE_LIMIT)]
        main.graph_launch(nodes, at=4_000 * i + 10, us=3_000)
    assert not len(facts_of(trace).host_time.full_queue.call)


def test_a_long_call_with_a_short_queue_did_not_block_on_it() -> None:
    assert not len(facts_of(full_queue(before=QUEUE_LIMIT // 2 - 5)).host_time.full_queue.call)


def test_a_long_call_during_which_no_work_ended_did_not_block_on_the_queue() -> None:
    trace = full_queue(before=QUEUE_LIMIT)
    main = trace.thread()
    # Between two kernels' ends, at 3,610 and 3,710 µs.
    main.launch("gemm", at=3_615, us=90, runs_at=200_000, runs_us=1)
    facts = facts_of(trace)
    lengths = facts.events.duration_ns[facts.host_time.full_queue.call]
    assert 90 * US not in lengths.tolist()
    assert len(lengths) == 3


def test_blocking_on_one_gpus_queue_is_not_launching_for_another() -> None:
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


def test_a_call_that_waits_for_the_gpu_anyway_does_not_block_on_the_queue() -> None:
    trace = full_queue()
    trace.thread().copy("DtoH", at=4_000, us=110_000, runs_at=110_000, runs_us=10, bytes=4)
    facts = facts_of(trace)
    assert len(facts.host_time.full_queue.call) == 3
