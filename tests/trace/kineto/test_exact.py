"""Timestamps are exact to the nanosecond, and the result does not depend on where the text is cut."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_gpudiag.trace.files.source import Limits
from tb_gpudiag.trace.trace_parts import LONGEST_NS
from tests.trace.support import document, memory_rows, nanoseconds, read_bytes, rows, slow_read, span
from tests.with_each import with_each

# Of one recording: since the profiler's base time, since boot, since 1970, and slightly negative.
TIMESTAMPS_NS = st.sampled_from([0, 10**13, 10**16, 10**18, 17 * 10**17, -(10**9)]).flatmap(
    lambda base: st.integers(base, base + 10**13)
)
SPANS_NS = TIMESTAMPS_NS.flatmap(
    lambda base: st.lists(
        st.tuples(st.integers(base, base + 10**13), st.integers(0, 10**12)), min_size=1, max_size=20
    )
)


def written(ns: int) -> str:
    """Write µs with 3 places."""
    sign = "-" if ns < 0 else ""
    return f"{sign}{abs(ns) // 1000}.{abs(ns) % 1000:03d}"


@pytest.mark.slow
@settings(deadline=None)
@given(SPANS_NS, st.booleans())
def test_timestamps_with_three_places(timestamps: list[tuple[int, int]], quoted: bool) -> None:
    mark = '"' if quoted else ""
    events = [
        f'{{"ph": "X", "cat": "cpu_op", "ts": {mark}{written(t)}{mark}, "dur": {mark}{written(d)}{mark}}}'
        for t, d in timestamps
    ]
    trace = read_bytes(document(*events))
    assert sorted((row[0], row[1]) for row in rows(trace)) == sorted(timestamps)
    assert trace.start_ns == min(start for start, _ in timestamps)
    assert trace.events.start_ns[0] == 0


@with_each(
    ("text", "ns"),
    [
        ("1712195495000123.457", 1712195495000123457),  # float64 has it as …123.5
        ("1712195495000123", 1712195495000123000),
        ("1623142623460111", 1623142623460111000),
        ("4385980259312.227", 4385980259312227),
        ("0.001", 1),
        ("0.0004", 0),
        ("0.0006", 1),
        ("12.3456", 12346),
        ("1e3", 1000000),
        ("1.5E-2", 15),
        ("-0.5", -500),
        ("-0", 0),
    ],
)
def test_forms_of_numbers(text: str, ns: int) -> None:
    assert nanoseconds(Decimal(text)) == ns
    assert read_bytes(document(f'{{"ph": "X", "cat": "kernel", "ts": {text}, "dur": 0}}')).start_ns == ns


def test_timestamps_far_apart_fit_64_bits() -> None:
    month_us = LONGEST_NS // 1000
    trace = read_bytes(document(span("late", 4e15, month_us), span("early", -1e15)))
    assert trace.events.end_ns.tolist()[-1] == (4 + 1) * 10**18 + LONGEST_NS
    trace = read_bytes(document(span("endless", 0, month_us + 1)))
    assert trace.events.end_ns.tolist() == [0]
    assert "1 span without a usable duration read as 0 ns long" in trace.notes


ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "correlation": st.integers(0, 2**40),
        "External id": st.integers(0, 2**40),
        "device": st.integers(0, 7),
        "stream": st.integers(0, 99),
        "bytes": st.integers(0, 2**40),
        "Python id": st.integers(1, 99),
        "Python parent id": st.none() | st.integers(1, 99),
        "Sequence number": st.integers(0, 99),
        "Fwd thread id": st.integers(0, 2),
        "Call stack": st.text(max_size=5),
        "Input Dims": st.just([[1, 2], [], [{"ph": "X"}, {"name": "}, {"}]]),
        "}, {": st.text(max_size=9),
    },
)
SPANS = st.fixed_dictionaries(
    {
        "ph": st.just("X"),
        "cat": st.sampled_from(
            ["Operator", "cpu_op", "kernel", "Memcpy", "gpu_memset", "python_function", "?"]
        ),
        "name": st.text(max_size=8)
        | st.sampled_from(['"},{"ph":"', "]}", "\\", "ProfilerStep#1", "[memory"]),
        "pid": st.integers(0, 3),
        "tid": st.integers(0, 3) | st.sampled_from(["stream 7", "2"]),
        "ts": st.integers(0, 1000),
        "dur": st.integers(-1, 50),
        "args": ARGUMENTS,
    }
)
MEMORY = st.fixed_dictionaries(
    {
        "ph": st.sampled_from("iX"),
        "name": st.just("[memory]"),
        "pid": st.just(1),
        "tid": st.just(2),
        "ts": st.integers(0, 1000),
        "args": st.fixed_dictionaries({"Bytes": st.integers(-9, 9), "Device Id": st.integers(-1, 1)}),
    }
)
OTHERS = st.fixed_dictionaries({"ph": st.sampled_from("sfMC"), "name": st.text(max_size=4), "ts": st.just(1)})


@pytest.mark.slow
@settings(max_examples=20)
@given(
    st.lists(SPANS | MEMORY | OTHERS, max_size=12),
    st.integers(1, 400),
    st.sampled_from([None, 1, 4]),
    st.booleans(),
    st.booleans(),
)
def test_any_events_cut_anywhere(
    events: list[dict[str, Any]], chunk_bytes: int, indent: int | None, ensure_ascii: bool, before: bool
) -> None:
    other = {"record_shapes": 1, "x": [{"ph": "X"}, {"ts": "]"}]}
    whole = {**other, "traceEvents": events} if before else {"traceEvents": events, **other}
    text = json.dumps(whole, indent=indent, ensure_ascii=ensure_ascii)
    spans, memory, elements = slow_read(text)
    untimed = sum(event["dur"] < 0 for event in events if "dur" in event)
    for limits in (Limits(), Limits(chunk_bytes=chunk_bytes)):
        trace = read_bytes(text.encode(), limits=limits)
        assert rows(trace) == spans
        assert memory_rows(trace) == memory
        read = elements - untimed, untimed, "COMPLETE"
        assert (trace.events_read, trace.malformed_events, trace.status) == read
        assert trace.metadata.record_shapes
