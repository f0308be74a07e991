"""Times of a GPU whose clock is wrong are corrected, where the recording shows that they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tb_gpudiag.arrays import NONE
from tb_gpudiag.trace.events import Trace
from tb_gpudiag.trace.times import launches
from tb_gpudiag.vocabulary.recorded import GPU_WORK_CATEGORIES
from tests.builder import TraceBuilder
from tests.report.reports import report_of
from tests.trace.support import read_bytes
from tests.with_each import with_each

LEAST_US, RETURN_US = 8, 5


def job(
    early_us: float,
    *,
    wait: str = "",
    streams: int = 1,
    devices: int = 1,
    kernels: int = 20,
    queued_us: float = 0,
) -> TraceBuilder:
    """Kernels, each 8 µs after its call, and later than that by what is queued then; after every fifth one, a
    wait that returns 5 µs after it. The first GPU's clock is early."""
    trace = TraceBuilder(devices=["GPU"] * devices)
    main = trace.thread()
    for number in range(kernels):
        at, device = 1_000.0 + 200.0 * number, number % devices
        runs_at = at + LEAST_US + queued_us * number - early_us * (device == 0)
        main.launch(
            "gemm", at=at, us=4, runs_at=runs_at, runs_us=40, device=device, stream=7 + number % streams
        )
        if wait and number % 5 == 4:
            main.sync(wait, at=at + 10, us=LEAST_US + 40 + RETURN_US - 10)
    return trace


def offsets_us(trace: TraceBuilder) -> dict[int, float]:
    return {device: ns / 1e3 for device, ns in read_bytes(trace.bytes()).clock_offsets_ns.items()}


def least_lag_us(trace: Trace) -> float:
    events = trace.events
    work = events.where(*GPU_WORK_CATEGORIES)
    launch = launches(events, work)
    assert (launch != NONE).all()
    return float((events.start_ns[work] - events.start_ns[launch]).min()) / 1e3


@with_each("wait", ["", "cudaDeviceSynchronize", "cudaStreamSynchronize"])
def test_no_kernel_begins_before_its_call(wait: str) -> None:
    for early in (20, 200, 900):
        trace = read_bytes(job(early, wait=wait).bytes())
        assert trace.clock_offsets_ns[0] == pytest.approx(1e3 * early, abs=5e3)
        assert 0 < least_lag_us(trace) < 12
        assert (np.diff(trace.events.start_ns) >= 0).all()


@with_each("wait", ["cudaDeviceSynchronize", "cudaStreamSynchronize", "hipDeviceSynchronize"])
def test_no_wait_returns_before_its_work_has_ended(wait: str) -> None:
    for late in (10, 200):
        trace = read_bytes(job(-late, wait=wait).bytes())
        assert trace.clock_offsets_ns[0] == pytest.approx(-1e3 * late, abs=5e3)
        assert 0 < least_lag_us(trace) < 12


@with_each(
    "trace",
    [
        job(0),
        job(0, wait="cudaDeviceSynchronize"),
        job(5, wait="cudaDeviceSynchronize"),  # still after its call
        job(-4, wait="cudaDeviceSynchronize"),  # still before the wait returns
        job(-200, kernels=10),  # too few, as latency would be
        job(-200, kernels=10, wait="cudaStreamSynchronize", streams=2),  # of which stream?
        job(-200, kernels=10, wait="cudaDeviceSynchronize", devices=2),  # of which device?
        job(-30),  # as a slow driver's latency would be
        job(-200, queued_us=100),  # each begins later than the one before it: they are queued
        job(5_000),  # no clock is so wrong: the ids mean something else
    ],
)
def test_what_can_be_right_stays(trace: TraceBuilder) -> None:
    assert offsets_us(trace) == {}


def test_kernels_for_an_idle_gpu_begin_at_once() -> None:
    for late in (50, 200, 900):
        assert offsets_us(job(-late)) == {0: pytest.approx(-late, abs=7)}


def test_each_gpu_has_its_own_clock() -> None:
    assert offsets_us(job(100, devices=2)) == {0: pytest.approx(100, abs=5)}


def test_bounds_that_contradict_each_other_change_nothing() -> None:
    trace = job(100, wait="cudaDeviceSynchronize")
    trace.thread().launch("gemm", at=6_000, us=4, runs_at=6_008, runs_us=500).sync(
        "cudaDeviceSynchronize", at=6_010, us=10
    )
    assert offsets_us(trace) == {}


def test_the_report_says_which_clock_was_wrong(tmp_path: Path) -> None:
    report = report_of(job(100), tmp_path)
    (note,) = (note for note in report.trace.notes if "clock" in note)
    assert note == "The clock of GPU 0 was 98.0 µs early: its times are corrected."
    assert note in report.better_recording.sentence
