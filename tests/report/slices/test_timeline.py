"""The timeline: the right boxes in the right lanes, at every zoom."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tb_gpudiag.facts.device_facts import DeviceFacts
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.prepared import Prepared
from tb_gpudiag.report.slices.timeline import MOST_BOXES, MOST_POINTS, prepare_timeline, slice_timeline
from tb_gpudiag.report.slices.timeline_lanes import MOST_COUNTERS
from tb_gpudiag.report.wire import from_json, to_json
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.vocabulary.recorded import Category
from tests.builder import BASE_NS, EPOCH_NS, TraceBuilder
from tests.real_traces import first_in, real_facts

REAL_TRACES = (
    "h100_owlv2",  # Python stacks, deep
    "a100_recsys_queued",  # many streams
    "v100_dlrm_8ranks",
    "v100_resnet50_workers0",  # the oldest form
    "a100_launches_without_kernels",
    "cpu_only",
)


class Box(NamedTuple):
    name: str
    start_us: float
    duration_us: float
    depth: int
    events: int


def boxes(timeline: pb.Timeline, title: str) -> list[Box]:
    lane = next(lane for lane in timeline.lanes if lane.title == title)
    return [
        Box(timeline.names[name], start, duration, depth, events)
        for name, start, duration, depth, events in zip(
            lane.box_name,
            lane.box_start_us,
            lane.box_duration_us,
            lane.box_depth,
            lane.box_count,
            strict=True,
        )
    ]


def prepared(trace: TraceBuilder, folder: Path) -> Prepared:
    return prepare_timeline(Facts(read_trace(str(trace.write(folder)))))


def two_steps() -> TraceBuilder:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=100).step(1, at=100, us=100)
    main.frame("train.py(12): train", at=5, us=90)
    main.op("aten::mm", at=10, us=20).launch("gemm", at=15, us=5, runs_at=30, runs_us=40)
    main.op("aten::add", at=110, us=20).launch("add", at=115, us=5, runs_at=130, runs_us=10, stream=20)
    other = trace.thread("autograd")
    other.op("aten::mul", at=150, us=20).launch("mul", at=155, us=5, runs_at=170, runs_us=10)
    return trace


def test_each_event_is_in_its_lane_at_its_time(tmp_path: Path) -> None:
    timeline = slice_timeline(prepared(two_steps(), tmp_path), None, None, 100_000)
    assert [(pb.Timeline.LaneKind.Name(lane.kind), lane.title, lane.device) for lane in timeline.lanes] == [
        ("gaps", "GPU 0 idle", 0),
        ("stream", "GPU 0 stream 7", 0),
        ("stream", "GPU 0 stream 20", 0),
        ("queue", "GPU 0 stream 7 queue", 0),
        ("queue", "GPU 0 stream 20 queue", 0),
        ("thread", timeline.lanes[5].title, -1),
        ("thread", timeline.lanes[6].title, -1),
    ]
    assert timeline.lanes[5].title.startswith("main: ")
    assert boxes(timeline, "GPU 0 stream 7") == [Box("gemm", 30, 40, 0, 1), Box("mul", 170, 10, 0, 1)]
    assert boxes(timeline, "GPU 0 stream 20") == [Box("add", 130, 10, 0, 1)]
    nested = boxes(timeline, timeline.lanes[5].title)
    assert [(box.name, box.depth) for box in nested] == [
        ("ProfilerStep#0", 0),
        ("ProfilerStep#1", 0),
        ("train.py(12): train", 1),
        ("aten::add", 1),
        ("aten::mm", 2),
        ("cudaLaunchKernel", 2),
        ("cudaLaunchKernel", 3),
    ]
    assert set(timeline.lanes[1].box_kind) == {Category.KERNEL}
    assert [(mark.name, mark.start_us, mark.end_us) for mark in timeline.steps] == [
        ("ProfilerStep#0", 0, 100),
        ("ProfilerStep#1", 100, 200),
    ]
    assert (timeline.start_us, timeline.end_us) == (0, 200)


def test_communication_kernels_have_their_own_kind(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.launch("gemm", at=0, us=5, runs_at=10, runs_us=20)
    main.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", at=10, us=5, runs_at=40, runs_us=20)
    timeline = slice_timeline(prepared(trace, tmp_path), None, None, 100_000)
    assert list(timeline.lanes[1].box_kind) == [Category.KERNEL, 13]
    assert 13 not in set(Category)


def test_a_box_of_a_gap_has_its_cause_as_name_and_the_number_of_the_gap(tmp_path: Path) -> None:
    timeline = slice_timeline(prepared(two_steps(), tmp_path), 69, 131, 100_000)
    lane = timeline.lanes[0]
    causes = [timeline.names[name] for name in lane.box_name]
    # After gemm: the end of the first step and the way to `add`, its launch, and the turnaround.
    assert causes[0] == "python"
    assert causes[-2:] == ["launch", "latency"]
    assert len(set(lane.box_gap)) == 1
    assert lane.box_start_us[0] == 70
    assert sum(lane.box_duration_us) == 60


def test_a_slice_has_the_boxes_of_its_range_and_all_lanes(tmp_path: Path) -> None:
    arrays = prepared(two_steps(), tmp_path)
    whole, part = slice_timeline(arrays, None, None, 1000), slice_timeline(arrays, 120, 140, 1000)
    assert [lane.title for lane in part.lanes] == [lane.title for lane in whole.lanes]
    assert boxes(part, "GPU 0 stream 20") == [Box("add", 130, 10, 0, 1)]
    assert boxes(part, "GPU 0 stream 7") == []
    assert [mark.name for mark in part.steps] == ["ProfilerStep#1"]
    assert (part.start_us, part.end_us) == (120, 140)


@pytest.mark.parametrize(("start_us", "end_us"), [(-1e300, 1e300), (1e6, 2e6), (-50.0, -40.0), (50.0, 50.0)])
def test_ranges_outside_the_trace_are_valid(tmp_path: Path, start_us: float, end_us: float) -> None:
    timeline = slice_timeline(prepared(two_steps(), tmp_path), start_us, end_us, 500)
    assert len(timeline.lanes) == 7
    assert from_json(to_json(timeline), pb.Timeline) == timeline


def test_a_queue_lane_shows_its_depth_over_time(tmp_path: Path) -> None:
    arrays = prepared(two_steps(), tmp_path)
    timeline = slice_timeline(arrays, None, None, 100_000)
    lane = timeline.lanes[3]
    assert (lane.kind, lane.queue_most, len(lane.box_start_us)) == (pb.Timeline.queue, 1, 0)
    # gemm waits from its launch's return to its start, and so does mul.
    points = list(zip(lane.queue.time_us, lane.queue.low, strict=True))
    assert points == [(0, 0), (20, 1), (30, 0), (160, 1), (170, 0)]
    assert lane.queue.low == lane.queue.high
    part = slice_timeline(arrays, 25, 165, 100_000).lanes[3].queue
    assert list(zip(part.time_us, part.low, strict=True)) == [(25, 1), (30, 0), (160, 1)]


@pytest.mark.slow
def test_zoomed_out_a_queue_lane_has_the_extremes_of_each_pixel(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for i in range(5_000):
        main.launch("k", at=10 * i, us=2, runs_at=10 * i + 4, runs_us=3)
        if i % 1_000 == 500:  # one that waits for longer
            main.launch("late", at=10 * i + 1, us=2, runs_at=10 * i + 100, runs_us=1)
    arrays = prepared(trace, tmp_path)
    lane = next(
        lane for lane in slice_timeline(arrays, None, None, 50).lanes if lane.kind == pb.Timeline.queue
    )
    assert lane.queue_most == max(lane.queue.high) == 2
    assert min(lane.queue.low) == 0
    assert len(lane.queue.time_us) <= 100
    near = slice_timeline(arrays, 5_000, 5_200, 50)
    lane = next(lane for lane in near.lanes if lane.kind == pb.Timeline.queue)
    assert lane.queue.low == lane.queue.high
    assert lane.queue_most == 2


@pytest.mark.slow
def test_queues_of_very_many_streams_are_bounded(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for stream in range(50):
        for i in range(stream + 1):
            at = 10.0 * (50 * i + stream)
            main.launch("k", at=at, us=2, runs_at=at + 500, runs_us=3, stream=stream)
    timeline = slice_timeline(prepared(trace, tmp_path), None, None, 100_000)
    lanes = [lane for lane in timeline.lanes if lane.kind == pb.Timeline.queue]
    assert [lane.title for lane in lanes] == [f"GPU 0 stream {stream} queue" for stream in range(42, 50)]
    assert sum(len(lane.queue.time_us) for lane in lanes) <= MOST_POINTS


def _count(trace: TraceBuilder, name: str, at: int, value: float, pid: int = 0) -> None:
    start_us = (EPOCH_NS - BASE_NS) // 1000 + at
    trace.raw({"ph": "C", "name": name, "pid": pid, "ts": start_us, "args": {"value": value}})


def test_counters_have_a_lane_below_the_queues_of_their_device(tmp_path: Path) -> None:
    trace = two_steps()
    for i in range(3):
        _count(trace, "clock [MHz]", at=10 * i, value=1_400.5 - i)
        _count(trace, "load", at=10 * i, value=i, pid=77)
    arrays = prepared(trace, tmp_path)
    timeline = slice_timeline(arrays, None, None, 1000)
    kinds = [lane.kind for lane in timeline.lanes]
    assert (
        kinds.index(pb.Timeline.counter)
        == max(i for i, kind in enumerate(kinds) if kind == pb.Timeline.queue) + 1
    )
    clock, load = (lane for lane in timeline.lanes if lane.kind == pb.Timeline.counter)
    assert (clock.title, clock.unit, clock.device) == ("GPU 0 clock [MHz]", "MHz", 0)
    assert (clock.queue_most, list(clock.queue.low)) == (1_400.5, [1_400.5, 1_399.5, 1_398.5])
    assert (load.title, load.device, load.queue_most) == ("load", -1, 2)
    assert from_json(to_json(timeline), pb.Timeline) == timeline


def test_many_counters_are_bounded(tmp_path: Path) -> None:
    trace = two_steps()
    for number in range(100):
        _count(trace, f"counter {number}", at=1, value=number)
    timeline = slice_timeline(prepared(trace, tmp_path), None, None, 1000)
    assert [lane.kind for lane in timeline.lanes].count(pb.Timeline.counter) == MOST_COUNTERS


def test_overlapping_work_on_one_stream_has_its_own_row(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.kernel("first", at=0, us=10).kernel("second", at=8, us=10).kernel("third", at=30, us=5)
    timeline = slice_timeline(prepared(trace, tmp_path), None, None, 100_000)
    found = boxes(timeline, "GPU 0 stream 7")
    assert [(box.name, box.duration_us, box.depth) for box in found] == [
        ("first", 10, 0),
        ("third", 5, 0),
        ("second", 10, 1),
    ]


def test_a_trace_without_a_gpu_shows_the_threads_that_ran_operators(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=())
    trace.thread().op("aten::mm", at=0, us=10)
    timeline = slice_timeline(prepared(trace, tmp_path), None, None, 1000)
    assert [lane.kind for lane in timeline.lanes] == [pb.Timeline.thread]
    assert [box.name for box in boxes(timeline, timeline.lanes[0].title)] == ["aten::mm"]


def test_a_trace_without_spans_has_no_lanes(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=())
    trace.raw({"ph": "i", "name": "mark", "ts": 1, "pid": 1, "tid": 1, "s": "t"})
    timeline = slice_timeline(prepared(trace, tmp_path), None, None, 1000)
    assert not timeline.lanes


def test_names_are_text_of_bounded_length(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.kernel("<img src=x onerror=alert(1)>", at=0, us=10).kernel("k" * 100_000, at=20, us=10)
    timeline = slice_timeline(prepared(trace, tmp_path), None, None, 1000)
    first, second = boxes(timeline, "GPU 0 stream 7")
    assert first.name == "<img src=x onerror=alert(1)>"
    assert len(second.name) <= 300


def test_very_many_streams_share_a_lane(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for stream in range(200):
        trace.kernel(f"k{stream}", at=stream * 10, us=5, stream=stream)
    timeline = slice_timeline(prepared(trace, tmp_path), None, None, 100_000)
    streams = [lane for lane in timeline.lanes if lane.kind == pb.Timeline.stream]
    assert len(streams) <= 33
    assert sum(sum(lane.box_count) for lane in streams) == 200


@pytest.mark.parametrize("name", REAL_TRACES)
def test_on_real_traces_slices_are_whole_ordered_and_bounded(name: str, shared_traces: Path) -> None:
    path = next((shared_traces / name).glob("*.gz"))
    facts = real_facts(path)
    arrays = prepare_timeline(facts)
    middle = (facts.recording.start_ns + facts.recording.end_ns) / 2000
    for width in (1, 300, 4096):
        timeline = slice_timeline(arrays, None, None, width)
        assert _box_count(timeline) <= MOST_BOXES
        for lane in timeline.lanes:
            _assert_disjoint(lane)
        for device in facts.devices:
            _assert_whole([lane for lane in timeline.lanes if lane.device == device.id], device)
        for zoom_us in (100.0, 10_000.0):
            part = slice_timeline(arrays, middle, middle + zoom_us, width)
            assert _box_count(part) <= MOST_BOXES


def _box_count(timeline: pb.Timeline) -> int:
    return sum(len(lane.box_start_us) for lane in timeline.lanes)


def _assert_whole(lanes: list[pb.Lane], device: DeviceFacts) -> None:
    """Check that a device's lanes contain all of its idle time, its work and its queues."""
    idle_ns = int((device.ledger.end_ns - device.ledger.start_ns).sum())
    assert round(sum(lanes[0].box_duration_us) * 1000) == idle_ns
    assert sum(lanes[0].box_count) == len(device.ledger)
    assert sum(sum(lane.box_count) for lane in lanes[1:]) == len(device.busy.work)
    for lane in lanes[1:]:
        assert all(low >= 0 for low in lane.queue.low)
        assert max(lane.queue.high, default=0) == lane.queue_most


def test_zoomed_in_the_idle_lane_is_the_ledger(shared_traces: Path) -> None:
    facts = first_in("h100_bert_small")
    arrays = prepare_timeline(facts)
    device = facts.devices[0]
    by_cause: defaultdict[str, float] = defaultdict(float)
    # Adjacent slices at a zoom where nothing is merged. A box belongs to the slice in which it begins.
    edges = np.linspace(facts.recording.start_ns, facts.recording.end_ns + 1, 60)
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        timeline = slice_timeline(arrays, low / 1000, high / 1000, 8192)
        lane = timeline.lanes[0]
        assert set(lane.box_count) <= {1}
        for name, start, duration in zip(lane.box_name, lane.box_start_us, lane.box_duration_us, strict=True):
            if int(low) <= round(start * 1000) < int(high):
                by_cause[timeline.names[name]] += duration
    window = device.window
    low_ns = min(device.span.start_ns, window.start_ns)
    high_ns = max(device.span.end_ns, window.end_ns)
    whole = device.ledger.by_cause(type(window)(low_ns, high_ns))
    assert {cause: round(us * 1000) for cause, us in by_cause.items()} == {
        cause.label: ns for cause, ns in whole.items()
    }


def _assert_disjoint(lane: pb.Lane) -> None:
    depth = np.array(lane.box_depth)
    start, end = np.array(lane.box_start_us), np.array(lane.box_start_us) + np.array(lane.box_duration_us)
    same = depth[1:] == depth[:-1]
    assert (depth[1:] >= depth[:-1]).all()
    assert (end[:-1][same] <= start[1:][same] + 1e-6 * np.abs(start[1:][same])).all()
