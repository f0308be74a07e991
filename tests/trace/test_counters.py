"""Counters become bounded series, whatever their events contain."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tb_gpudiag.arrays import NONE
from tb_gpudiag.trace import trace_parts
from tb_gpudiag.trace.events import Counter, Trace
from tests.trace.support import read_bytes
from tests.with_each import with_each

GPU, HOST = 0, 100


OWN = (
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": HOST, "tid": 1, "ts": 0, "dur": 5,
     "args": {"correlation": 1}},
    {"ph": "X", "cat": "kernel", "name": "gemm", "pid": GPU, "tid": 7, "ts": 10, "dur": 1_000,
     "args": {"device": GPU, "stream": 7, "correlation": 1}},
)  # fmt: skip


def read(*events: dict[str, Any] | str) -> Trace:
    """Read a launch and its kernel, and these events. A text is written as it is."""
    written = [event if isinstance(event, str) else json.dumps(event) for event in (*OWN, *events)]
    return read_bytes(f'{{"schemaVersion":1,"traceEvents":[{",".join(written)}]}}'.encode())


def count(name: str, ts: float, args: Any, **more: Any) -> dict[str, Any]:
    return {"ph": "C", "name": name, "pid": GPU, "ts": ts, "args": args, **more}


def shown(trace: Trace) -> dict[str, list[float]]:
    return {counter.name: counter.value.tolist() for counter in trace.counters}


def one(trace: Trace) -> Counter:
    (counter,) = trace.counters
    return counter


def test_without_counters_there_are_none() -> None:
    trace = read()
    assert (trace.counters, trace.notes) == ([], [])


def test_values_are_in_time_order_since_the_start() -> None:
    trace = read(*(count("SM clock [MHz]", ts, {"value": ts}) for ts in (30, 10, 20.5)))
    counter = one(trace)
    assert (counter.name, counter.unit, counter.device, counter.timed) == ("SM clock [MHz]", "MHz", 0, True)
    assert counter.time_ns.tolist() == [10_000, 20_500, 30_000]
    assert counter.value.tolist() == [10, 20.5, 30]


@with_each(
    ("name", "unit"),
    [
        ("SMs Active [Throughput %]", "%"),
        ("DRAM Read Bandwidth [GB/s]", "GB/s"),
        ("Memcpy HtoD Bandwidth (GB/s)", "GB/s"),
        ("power (W)", "W"),
        ("Queue Length", ""),
        ("clock [fast]", ""),
    ],
)
def test_units_are_read_from_names(name: str, unit: str) -> None:
    assert one(read(count(name, 1, {name: 1}))).unit == unit


def test_the_unit_of_an_event_is_that_of_its_series() -> None:
    found = read(count("power (W)", 1, {"draw": 300, "limit": 700})).counters
    assert {(counter.name, counter.unit) for counter in found} == {
        ("power (W): draw", "W"),
        ("power (W): limit", "W"),
    }


def test_each_key_and_each_id_is_a_series() -> None:
    trace = read(
        count("power", 1, {"draw": 300, "limit": 700}),
        count("power", 2, {"draw": 310, "limit": 700}),
        count("Queue Length", 3, {"Queue Length": 4}, id="7"),
        count("Queue Length", 3, {"Queue Length": 5}, id="20"),
    )
    assert shown(trace) == {
        "power: draw": [300, 310],
        "power: limit": [700, 700],
        "Queue Length #7": [4],
        "Queue Length #20": [5],
    }


def test_a_counter_of_a_process_is_not_one_of_a_gpu() -> None:
    counter = one(read(count("load", 1, {"value": 1}, pid=4242)))
    assert counter.device == NONE


def test_a_pid_that_is_a_gpu_and_a_process_says_nothing() -> None:
    work = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": GPU, "tid": 5, "ts": 1, "dur": 1}
    assert one(read(count("load", 1, {"value": 1}), work)).device == NONE


def test_metrics_of_ranges_have_no_times() -> None:
    metrics = {"External id": 3, "sm__inst_executed_pipe_tensor.sum": 12, "dram__bytes_read.sum": 1e9}
    ranges = [
        {"ph": "X", "cat": "cuda_profiler_range", "name": "gemm", "pid": 1, "tid": 0, "ts": ts, "dur": 5,
         "args": metrics}
        for ts in (10, 20)
    ]  # fmt: skip
    found = read(*ranges).counters
    assert {c.name: c.value.tolist() for c in found} == {
        "sm__inst_executed_pipe_tensor.sum": [12, 12],
        "dram__bytes_read.sum": [1e9, 1e9],
    }
    assert {(c.device, c.timed) for c in found} == {(1, False)}


def test_values_that_are_no_numbers_are_skipped() -> None:
    odd: list[Any] = [None, 3, "x", [], {}]
    trace = read(
        count("odd", 1, {"a": "text", "b": None, "c": [1, 2], "d": {"e": 1}, "f": 2}),
        '{"ph":"C","name":"odd","pid":0,"ts":2,"args":{"f":NaN,"a":1e999,"d":-Infinity}}',
        '{"ph":"C","name":"odd","pid":0,"ts":3,"args":{"f":"4"}}',
        *(count("no args", 1, args) for args in odd),
        {"ph": "C", "name": "no args", "ts": 1},
        {"ph": "C", "name": "no time", "args": {"value": 1}},
        {"ph": "C"},
    )
    assert shown(trace) == {"odd: f": [2, 4]}
    assert trace.malformed_events == 0


def test_far_timestamps_are_skipped() -> None:
    trace = read(count("clock", 1, {"value": 1}), count("clock", 1e15, {"value": 2}))
    assert shown(trace) == {"clock": [1]}


def test_many_series_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_parts, "_MOST_SERIES", 200)
    often = [count("clock", ts, {"value": ts}) for ts in range(50)]
    trace = read(*often, *(count(f"counter {i}", 1, {f"key {i}": i}) for i in range(1_000)))
    assert len(trace.counters) == trace_parts.MOST_COUNTERS
    assert trace.counters[0].name == "clock"
    assert "more counters or samples" in trace.notes[-1]


def test_many_samples_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_parts, "_MOST_SAMPLES", 100)
    trace = read(*(count("clock", i, {"value": i}) for i in range(1_000)))
    assert one(trace).value.tolist() == list(range(100))
    assert "more counters or samples" in trace.notes[-1]


def test_long_names_are_cut() -> None:
    trace = read(count("token", 1, {"x" * 5_000: 1}), count("n" * 9_000, 2, {"value": 1}))
    assert all(len(counter.name) <= 200 for counter in trace.counters)


@pytest.mark.slow
def test_counters_over_many_chunks() -> None:
    samples = 60_000
    events = ",".join(
        f'{{"ph":"C","name":"clock [MHz]","pid":0,"ts":{i},"args":{{"value":{i % 97}.5,"cap":100}}}}'
        for i in range(samples)
    )
    trace = read(events)
    clock, cap = sorted(trace.counters, key=lambda counter: counter.value[0])
    assert np.array_equal(clock.value, np.arange(samples) % 97 + 0.5)
    assert np.array_equal(clock.time_ns, np.arange(samples) * 1_000)
    assert np.array_equal(cap.value, np.full(samples, 100.0))


def test_a_key_of_any_length_is_read_at_once() -> None:
    key = "a" + "_" * 100_000 + "!"
    found = one(read(count("clock", 10, {key: 1.0})))
    assert found.name.startswith("clock: a___")
    assert len(found.name) == 120
