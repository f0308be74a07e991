"""Meaning of events, in all generations of the format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.arrays import NONE
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.vocabulary.recorded import Category
from tests.builder import Generation, TraceBuilder
from tests.some_values import EACH_GENERATION
from tests.trace.support import document, memory_rows, names, read_bytes, rows, slow_read, span
from tests.with_each import with_each


@with_each(
    ("cat", "category"),
    [
        ("Operator", Category.CPU_OP),
        ("cpu_op", Category.CPU_OP),
        ("user_annotation", Category.USER_ANNOTATION),
        ("python_function", Category.PYTHON_FUNCTION),
        ("Runtime", Category.RUNTIME),
        ("cuda_runtime", Category.RUNTIME),
        ("xpu_runtime", Category.RUNTIME),
        ("mtia_runtime", Category.RUNTIME),
        ("cuda_driver", Category.DRIVER),
        ("xpu_driver", Category.DRIVER),
        ("Kernel", Category.KERNEL),
        ("kernel", Category.KERNEL),
        ("Memcpy", Category.MEMCPY),
        ("gpu_memcpy", Category.MEMCPY),
        ("Memset", Category.MEMSET),
        ("gpu_memset", Category.MEMSET),
        ("gpu_user_annotation", Category.GPU_USER_ANNOTATION),
        ("overhead", Category.OVERHEAD),
        ("cuda_sync", Category.CUDA_SYNC),
        ("cpu_instant_event", Category.INSTANT),
        ("Trace", Category.OTHER),
        ("something of tomorrow", Category.OTHER),
        (None, Category.OTHER),
    ],
)
def test_categories(cat: str | None, category: Category) -> None:
    event = span(cat=cat) if cat is not None else {k: v for k, v in span().items() if k != "cat"}
    assert read_bytes(document(event, schemaVersion=1)).events.category.tolist() == [category]


@with_each(
    ("cat", "name", "category"),
    [
        ("Operator", "ProfilerStep#3", Category.USER_ANNOTATION),
        ("Operator", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", Category.USER_ANNOTATION),
        ("Operator", "Optimizer.step#SGD.step", Category.USER_ANNOTATION),
        ("Operator", "aten::ProfilerStep#3", Category.CPU_OP),
        ("cpu_op", "ProfilerStep#3", Category.CPU_OP),
        ("user_annotation", "ProfilerStep#3", Category.USER_ANNOTATION),
        ("gpu_user_annotation", "ProfilerStep#3", Category.GPU_USER_ANNOTATION),
    ],
)
def test_steps(cat: str, name: str, category: Category) -> None:
    assert read_bytes(document(span(name, cat=cat))).events.category.tolist() == [category]


@with_each(
    ("event", "device", "stream"),
    [
        ({"pid": 2, "tid": 7, "args": {"device": 2, "stream": 7}}, 2, 7),
        ({"pid": 2, "tid": "stream 7", "args": {"device": 2, "stream": 7}}, 2, 7),
        ({"pid": 2, "tid": "stream 7"}, 2, 7),
        ({"pid": "2", "tid": "7", "args": {}}, 2, 7),
        ({"pid": 0, "tid": 1, "args": {"device": 3, "stream": 20}}, 3, 20),
        ({"pid": "GPU", "tid": "main", "args": {}}, NONE, NONE),
        ({"pid": 1, "tid": 1, "args": {"device": 2**40, "stream": "x"}}, 1, 1),
    ],
)
@with_each("cat", ["kernel", "gpu_memcpy", "Memset"])
def test_device_and_stream_of_gpu_work(event: dict[str, Any], device: int, stream: int, cat: str) -> None:
    events = read_bytes(document(span(cat=cat, **event))).events
    assert (events.device.tolist(), events.stream.tolist()) == ([device], [stream])


def test_the_category_decides_what_gpu_work_is() -> None:
    # In a container, a process of the host may have the number of a GPU.
    events = read_bytes(
        document(span(pid=1, tid=1, args={"stream": 4}), span(cat="kernel", pid=1, tid=7))
    ).events
    assert events.device.tolist() == [NONE, 1]
    assert events.stream.tolist() == [NONE, 7]


def test_a_tid_is_the_same_as_number_and_as_text() -> None:
    name = {"ph": "M", "name": "thread_name", "pid": 7, "tid": "8", "args": {"name": "thread 8 (python)"}}
    trace = read_bytes(document(span(tid=8), span(tid="8"), span(pid="7", tid=8), span(pid=9), name))
    assert len(set(trace.events.thread.tolist())) == 2
    first = trace.events.threads[trace.events.thread[0]]
    assert (first.pid, first.tid, first.name) == ("7", "8", "thread 8 (python)")


def test_arguments() -> None:
    trace = read_bytes(
        document(
            span(
                "op",
                1,
                args={"Sequence number": 11, "Fwd thread id": 2, "Call stack": "b.py(2): g;a.py(1): f"},
            ),
            span("call", 2, cat="cuda_runtime", args={"correlation": 77, "bytes": "128"}),
            span("copy", 3, cat="gpu_memcpy", args={"correlation": 77, "bytes": 4096}),
            span("f", 4, cat="python_function", args={"Python id": 5, "Python parent id": 4}),
            span("root", 5, cat="python_function", args={"Python id": 6, "Python parent id": None}),
            span("odd", 6, args={"correlation": {"a": 1}, "Sequence number": "x", "Call stack": ""}),
            span("none", 7, args=[1, 2]),
        )
    )
    e = trace.events
    assert e.correlation.tolist() == [NONE, 77, 77, NONE, NONE, NONE, NONE]
    assert e.bytes.tolist() == [NONE, NONE, 4096, NONE, NONE, NONE, NONE]
    assert e.python_id.tolist() == [NONE, NONE, NONE, 5, 6, NONE, NONE]
    assert e.python_parent.tolist() == [NONE, NONE, NONE, 4, NONE, NONE, NONE]
    assert e.sequence.tolist() == [11] + [NONE] * 6
    assert e.forward_thread.tolist() == [2] + [NONE] * 6
    assert e.call_stack.tolist() == [0] + [NONE] * 6
    assert e.call_stacks == ["b.py(2): g;a.py(1): f"]


@with_each("form", [{"ph": "i", "s": "t"}, {"ph": "X", "dur": 12.5}, {"ph": "I"}])
def test_memory_events(form: dict[str, Any]) -> None:
    args = {
        "Device Type": 1,
        "Device Id": 0,
        "Addr": 2**64 - 1,
        "Total Allocated": 2**40,
        "Total Reserved": 2**41,
    }
    base = {"name": "[memory]", "pid": 7, "tid": 8, "cat": "cpu_instant_event"}
    free = {**base, **form, "ts": 9, "args": {**args, "Bytes": -512}}
    old = {
        "name": "[memory]",
        "pid": 7,
        "tid": 8,
        **form,
        "ts": 3,
        "args": {"Device Id": -1, "Bytes": 4, "Device Type": 0},
    }
    trace = read_bytes(document(free, old, span("op", 5)))
    assert names(trace) == ["op"]  # memory events are not spans, however they are written
    assert trace.events_read == 3
    assert memory_rows(trace) == [
        (3000, 4, 0, 0, NONE, NONE, NONE, ("7", "8")),
        (9000, -512, 2**64 - 1, 1, 0, 2**40, 2**41, ("7", "8")),
    ]
    assert trace.start_ns == 3000
    assert trace.memory.time_ns.tolist() == [0, 6000]


def test_other_phases_are_counted_but_have_no_rows() -> None:
    others = [{"ph": ph, "name": "x", "pid": 1, "tid": 1, "ts": 0} for ph in ("s", "f", "M", "C", "i", "t")]
    trace = read_bytes(document(*others, span(ts=10)))
    assert (trace.events_read, len(trace.events), trace.start_ns) == (7, 1, 10_000)


def test_impossible_durations_are_zero_and_noted() -> None:
    no_duration = {k: v for k, v in span(ts=6).items() if k != "dur"}
    text = [
        json.dumps(span(ts=t)).replace('"dur": 1', f'"dur": {d}')
        for t, d in ((3, "NaN"), (4, "inf"), (5, "null"))
    ]
    trace = read_bytes(
        document(span(ts=1, dur=-1), span(ts=2, dur=1e30), *text, no_duration, span(ts=7, dur=2))
    )
    assert trace.events.duration_ns.tolist() == [0, 0, 0, 0, 0, 0, 2000]
    assert (trace.events_read, trace.malformed_events) == (1, 6)
    assert [note.split(" ", 1)[0] for note in trace.notes] == ["text", "6"]


@with_each("ts", ["null", "NaN", "inf", '"soon"', "[1]", "1e40", "-1e40", "9.3e18"])
def test_a_span_without_a_timestamp_is_malformed(ts: str) -> None:
    bad = json.dumps(span("bad", 1)).replace('"ts": 1', f'"ts": {ts}')
    trace = read_bytes(document(span("a", 1), bad, span("b", 2)))
    assert (names(trace), trace.events_read, trace.malformed_events) == (["a", "b"], 2, 1)


def test_elements_that_are_not_events_are_malformed() -> None:
    no_phase = {k: v for k, v in span().items() if k != "ph"}
    trace = read_bytes(document("5", "null", '"text"', "[1, {}]", "{}", json.dumps(no_phase), span("good")))
    assert (names(trace), trace.events_read, trace.malformed_events) == (["good"], 1, 6)


def test_an_event_with_only_phase_and_timestamp_is_read() -> None:
    trace = read_bytes(document('{"ph": "X", "ts": 4}', '{"ph": "i"}', schemaVersion=1))
    assert (trace.events_read, trace.malformed_events) == (1, 1)
    assert rows(trace) == [
        (4000, 0, Category.OTHER, "", ("", ""), *[NONE] * 9, "", -1.0, (0, 0, -1), *[""] * 3)
    ]


def test_the_last_of_equal_keys_of_an_event_wins() -> None:
    """As in viewers."""
    trace = read_bytes(
        document('{"ph": "X", "cat": "kernel", "ts": 4, "name": "a", "ts": 5, "dur": 1, "name": "b"}')
    )
    assert (names(trace), trace.start_ns) == (["b"], 5000)


def begin_end(*events: tuple[str, str, float], tid: int = 1) -> list[dict[str, Any]]:
    return [
        {"ph": ph, "name": name, "cat": "cpu_op", "pid": 1, "tid": tid, "ts": ts} for ph, name, ts in events
    ]


def test_begins_and_ends_are_matched_within_their_threads() -> None:
    one = begin_end(
        ("B", "outer", 1), ("B", "inner", 2), ("E", "", 3), ("B", "again", 4), ("E", "", 6), ("E", "", 9)
    )
    two = begin_end(("B", "other", 1.5), ("E", "", 8), tid=2)
    trace = read_bytes(document(*two[::-1], *one, span("whole", 5)))
    found = [(row[3], row[0], row[1]) for row in rows(trace)]
    assert found == [
        ("outer", 1000, 8000),
        ("other", 1500, 6500),
        ("inner", 2000, 1000),
        ("again", 4000, 2000),
        ("whole", 5000, 1000),
    ]
    assert trace.notes == []


def test_begins_and_ends_without_counterpart_are_skipped_and_noted() -> None:
    events = begin_end(
        ("E", "", 1), ("B", "a", 2), ("E", "", 3), ("B", "open", 4), ("B", "b", 5), ("E", "", 6)
    )
    trace = read_bytes(document(*events))
    assert [(row[3], row[1]) for row in rows(trace)] == [("a", 1000), ("b", 1000)]
    assert trace.notes == ["2 begin or end events without a counterpart skipped"]


@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_a_small_job_in_every_generation(generation: Generation, tmp_path: Path) -> None:
    builder = TraceBuilder(generation)
    main = builder.thread()
    main.step(0, at=0, us=1000)
    main.frame("train.py(12): train", at=0, us=1000)
    main.loader(at=0, us=700)
    main.op("aten::mm", at=720, us=40)
    main.launch("gemm", at=730, us=10, runs_at=745, runs_us=250)
    path = builder.write(tmp_path / "run")
    trace = read_trace(str(path))
    spans, memory, elements = slow_read(path.read_text())
    assert (rows(trace), memory_rows(trace), trace.events_read) == (spans, memory, elements)
    e = trace.events
    kernel, call = e.where(Category.KERNEL), e.where(Category.RUNTIME, Category.DRIVER)
    assert [e.names[i] for i in e.name[kernel]] == ["gemm"]
    assert e.correlation[kernel].tolist() == e.correlation[call].tolist() != [NONE]
    assert (e.duration_ns[kernel].tolist(), e.device[kernel].tolist()) == ([250_000], [0])
    steps = [e.names[i] for i in e.name[e.where(Category.USER_ANNOTATION)] if "ProfilerStep" in e.names[i]]
    assert steps == ["ProfilerStep#0"]
    frames = len(e.where(Category.PYTHON_FUNCTION)) + len(e.call_stacks)
    assert frames > 0
