"""Errors of writers are repaired or skipped, one event at a time."""

from __future__ import annotations

import gzip
import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_gpudiag.errors import TraceError
from tb_gpudiag.trace.files.source import Limits
from tb_gpudiag.trace.kineto.structure import repaired
from tests.trace.support import document, names, read_bytes, span
from tests.with_each import with_each

# The size of chunks decides where the text is cut. The result must not depend on it.
CHUNKS = pytest.mark.parametrize("chunk_bytes", [1 << 22, 90, 17])


def spans(count: int) -> list[str]:
    return [json.dumps(span(f"good{i}", i)) for i in range(count)]


@CHUNKS
@pytest.mark.parametrize(
    ("written", "name"),
    [
        (rb'"C:\Users\me\q.py(3): f"', r"C:\Users\me\q.py(3): f"),
        (rb'"C:\\Users\py"', r"C:\Users\py"),
        (rb'"\users\x\u12"', r"\users\x\u12"),
        (rb'"a\\"', "a\\"),
        (rb'"say \"}, {\" twice"', 'say "}, {" twice'),
        (b'"tab\there\x00\x1f"', "tab here  "),
        (b'"two\nlines"', "two lines"),
        (b'"caf\xe9 \xff"', "caf\ufffd \ufffd"),
        ('"café \N{GRINNING FACE}"'.encode(), "café \N{GRINNING FACE}"),
        (rb'"\ud83d\ude00"', "\N{GRINNING FACE}"),
        (rb'"lone \ud83d high, lone \ude00 low"', "lone \ufffd high, lone \ufffd low"),
        (b'"]}, {[ \\"traceEvents\\": ["', ']}, {[ "traceEvents": ['),
        (b'"}],\\n{"', "}],\n{"),
        (b'"' + b"x" * 5160 + b'"', "x" * 5160),
    ],
)
def test_names(written: bytes, name: str, chunk_bytes: int) -> None:
    event = json.dumps(span("NAME", 1.5)).encode().replace(b'"NAME"', written)
    content = document(*spans(6)).replace(
        b'{"ph": "X", "cat": "cpu_op", "name": "good2"', event + b', {"ph": "X", "name": "good2"'
    )
    trace = read_bytes(content, limits=Limits(chunk_bytes=chunk_bytes))
    assert names(trace) == ["good0", "good1", name, "good2", "good3", "good4", "good5"]
    assert (trace.malformed_events, trace.status) == (0, "COMPLETE")
    assert trace.events.names.count(name) == 1


@CHUNKS
@pytest.mark.parametrize("value", ["N/A", "inf", "-inf", "NaN", "Infinity", "nan"])
def test_values_that_are_not_json(value: str, chunk_bytes: int) -> None:
    args = f'{{"a": {value}, "correlation": 5, "b": {value}}}'
    odd = f'{{"ph": "X", "ts": 2.5, "dur": 1, "name": "odd", "args": {args}}}'
    trace = read_bytes(document(*spans(3), odd, *spans(1)), limits=Limits(chunk_bytes=chunk_bytes))
    assert sorted(names(trace)) == ["good0", "good0", "good1", "good2", "odd"]
    assert trace.malformed_events == 0
    assert trace.events.correlation.max() == 5


BROKEN = {
    "an unescaped quote": '{"ph": "X", "ts": 1, "dur": 1, "name": "say "hi""}',
    "one unescaped quote": '{"ph": "X", "ts": 1, "dur": 1, "name": "5" wide"}',
    "a quote and brackets": '{"ph": "X", "ts": 1, "name": "a"]}b", "args": {"x": [1, 2]}}',
    "no value": '{"ph": "X", "ts": , "dur": 1, "name": "a"}',
    "no quotes": '{"ph": "X", "ts": 1, name: a}',
    "a bracket too many": '{"ph": "X", "ts": 1, "args": {"x": [1]]}}',
    "a bracket too few": '{"ph": "X", "ts": 1, "args": {"x": [1}}',
    "a brace too many": '{"ph": "X", "ts": 1}}',
    "a brace too few": '{"ph": "X", "ts": 1, "args": {"x": 1}',
    "nothing in it is right": '{"ph"}',
}


@pytest.mark.slow
@with_each("chunk_bytes", [1 << 22, 17])
@with_each("place", ["first", "last", "twice"])
@with_each("broken", BROKEN.values())
def test_a_broken_event_costs_only_itself(broken: str, place: str, chunk_bytes: int) -> None:
    good = spans(8)
    events = {
        "first": [broken, *good],
        "last": [*good, broken],
        "twice": [*good[:3], broken, broken, *good[3:6], broken, *good[6:]],
    }[place]
    content = document(*events, schemaVersion=1)[:-1] + b', "record_shapes": 1, "traceName": "x"}'
    trace = read_bytes(content, limits=Limits(chunk_bytes=chunk_bytes))
    assert names(trace) == [f"good{i}" for i in range(8)]
    assert (trace.events_read, trace.malformed_events) == (8, len(events) - 8)
    assert (trace.status, trace.metadata.record_shapes) == ("COMPLETE", True)
    assert f"{len(events) - 8} malformed event{'s' * (len(events) > 9)} skipped" in trace.notes


@CHUNKS
def test_a_list_of_objects_in_an_event_next_to_a_broken_one(chunk_bytes: int) -> None:
    nested = json.dumps(
        span("nested", 1.5, args={"list": [{"name": 1}, {"ts": 2}, {"ph": "X"}], "correlation": 9})
    )
    content = document(*spans(2), nested, '{"ph": }', *spans(1))
    trace = read_bytes(content, limits=Limits(chunk_bytes=chunk_bytes))
    assert sorted(names(trace)) == ["good0", "good0", "good1", "nested"]
    assert trace.malformed_events == 1


def test_an_element_over_the_limit_costs_only_itself() -> None:
    # The string is never closed: only the start of the next event shows where this one ends.
    endless = '{"ph": "X", "ts": 1, "name": "' + "x" * 20_000
    limits = Limits(chunk_bytes=1000, max_element_bytes=4000)
    trace = read_bytes(document(*spans(5), endless, *spans(3)), limits=limits)
    assert sorted(names(trace)) == sorted([*(f"good{i}" for i in range(5)), "good1", "good2"])
    assert trace.malformed_events == 1


@pytest.mark.slow
@settings(deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1 << 22, 300, 50]))
def test_random_damage_costs_only_the_events_it_touches(seed: int, chunk_bytes: int) -> None:
    """Any bytes in a name: the other events are read, and the damaged one is read or counted."""
    rng = random.Random(seed)
    good = spans(12)
    junk = bytes(rng.choice(b'abc{}[]":,\\ \n\x00\xff') for _ in range(rng.randrange(1, 12)))
    bad = json.dumps(span("BAD", 100)).encode().replace(b"BAD", junk)
    place = rng.randrange(12)
    texts = [text.encode() for text in good]
    content = b'{"traceEvents": [' + b",\n".join([*texts[:place], bad, *texts[place:]]) + b"]}"
    trace = read_bytes(content, limits=Limits(chunk_bytes=chunk_bytes))
    read = [name for name in names(trace) if name.startswith("good")]
    assert read == [f"good{i}" for i in range(12)]
    assert trace.events_read + trace.malformed_events >= 13


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_repairing_twice_is_repairing_once(text: bytes) -> None:
    assert repaired(repaired(text)) == repaired(text)


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.recursive(st.none() | st.text() | st.integers(), lambda x: st.lists(x) | st.dictionaries(st.text(), x))
)
@pytest.mark.parametrize("ensure_ascii", [True, False])
def test_repairing_does_not_change_json(ensure_ascii: bool, value: object) -> None:
    text = json.dumps(value, ensure_ascii=ensure_ascii)
    assert json.loads(repaired(text.encode())) == value


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.binary(max_size=300),
    st.sampled_from([b"", b"[", b'{"traceEvents": [', b"\x1f\x8b"]),
    st.integers(1, 80),
)
def test_any_bytes_are_read_or_refused(content: bytes, begin: bytes, chunk_bytes: int) -> None:
    read_or_refused(begin + content, chunk_bytes)


@pytest.mark.slow
@settings(deadline=None)
@given(st.data())
def test_a_trace_with_any_change_is_read_or_refused(data: st.DataObject) -> None:
    content = bytearray(document(*spans(4), record_shapes=1))
    if data.draw(st.booleans()):
        content = bytearray(gzip.compress(bytes(content)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=5))
    read_or_refused(bytes(content), data.draw(st.sampled_from([1 << 22, 64])))


def read_or_refused(content: bytes, chunk_bytes: int) -> None:
    try:
        trace = read_bytes(content, limits=Limits(chunk_bytes=chunk_bytes))
    except TraceError:
        return
    assert np.all(np.diff(trace.events.start_ns) >= 0)
    assert np.all(trace.events.duration_ns >= 0)
    rows = len(trace.events) + len(trace.memory)
    # A span that is read as 0 ns long may be malformed, and is a row.
    assert rows - int((trace.events.duration_ns == 0).sum()) <= trace.events_read
    assert rows <= trace.events_read + trace.malformed_events
