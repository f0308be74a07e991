"""Durations that cannot be are cut, and said."""

from __future__ import annotations

from pathlib import Path

from tests.builder import TraceBuilder
from tests.report.reports import report_of
from tests.trace.support import read_bytes
from tests.with_each import with_each

LONG_US = 5_000


def kernels(*spans: tuple[float, float, int], graph: bool = False) -> TraceBuilder:
    """Kernels of (start, duration, stream), in µs, launched one by one or as one graph."""
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=2_000)
    if graph:
        main.graph_launch([("gemm", at, us) for at, us, _ in spans], at=5, us=5)
        return trace
    for number, (at, us, stream) in enumerate(spans):
        main.launch("gemm", at=5 + 10 * number, us=5, runs_at=at, runs_us=us, stream=stream)
    return trace


def durations_us(trace: TraceBuilder) -> list[float]:
    events = read_bytes(trace.bytes()).events
    return (events.duration_ns[events.stream == 7] / 1e3).tolist()


def test_a_kernel_that_outlasts_later_ones_of_its_stream_ends_where_the_next_one_begins(
    tmp_path: Path,
) -> None:
    trace = kernels((100, LONG_US, 7), (200, LONG_US, 7), (300, 50, 7), (400, 50, 7))
    assert durations_us(trace) == [100, 100, 50, 50]
    report = report_of(trace, tmp_path)
    assert report.devices[0].window_us < 1_000 + LONG_US
    said = "2 kernels or copies still ran"
    assert said in report.better_recording.sentence
    assert any(said in note for note in report.trace.notes)


@with_each(
    "spans",
    [
        [(100, 90, 7), (188, 50, 7)],  # programmatic dependent launch
        [(100, LONG_US, 7), (200, 50, 8), (300, 50, 8)],  # another stream
        [(100, 100, 7), (200, 0, 7)],
    ],
)
def test_what_can_be_stays(spans: list[tuple[float, float, int]]) -> None:
    trace = read_bytes(kernels(*spans).bytes())
    assert trace.cut_work == 0
    assert not trace.time_notes


def test_the_kernels_of_a_graph_may_run_side_by_side() -> None:
    trace = read_bytes(kernels((100, LONG_US, 7), (200, 50, 7), graph=True).bytes())
    assert trace.cut_work == 0
    assert LONG_US * 1_000 in trace.events.duration_ns
