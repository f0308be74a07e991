"""Values in `traceEvents` that are not objects are counted, and cost no event."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_gpudiag.trace.files.source import Limits
from tests.trace.support import document, names, read_bytes, span
from tests.with_each import with_each

GOOD = "GOOD"
VALUES = [
    *("null", "true", "0", "-1.5e3", "123456789"),
    *('""', '"a, b"', r'"a},{\"ph\": 1"', r'"\\"', '"]}"', '"[{"'),
    *("[]", "[1, 2]", "[[], [[]]]", "[{}]", '[{"a": 1}, {"b": "],"}]', '["x", {"c": [{}, {}]}]'),
]
ELEMENTS = st.tuples(st.sampled_from([GOOD, GOOD, *VALUES]), st.integers(1, 6))


def text_of(elements: list[str], separator: str = ",") -> bytes:
    """Make a trace of these values. Events are named by their number."""
    count = 0
    texts = []
    for element in elements:
        if element == GOOD:
            element = f'{{"ph":"X","ts":{count},"dur":1,"name":"{count}"}}'
            count += 1
        texts.append(element)
    return (
        b'{"schemaVersion": 1, "traceEvents": [' + separator.join(texts).encode() + b'], "record_shapes": 1}'
    )


@pytest.mark.slow
@settings(deadline=None)
@given(
    runs=st.lists(ELEMENTS, min_size=1, max_size=12),
    separator=st.sampled_from([",", ", ", " ,\n"]),
    chunk_bytes=st.integers(1, 200),
    max_element_bytes=st.sampled_from([320, 8 << 20]),
)
def test_all_events_between_other_values_are_read(
    runs: list[tuple[str, int]], separator: str, chunk_bytes: int, max_element_bytes: int
) -> None:
    elements = [element for element, count in runs for _ in range(count)]
    limits = Limits(chunk_bytes=chunk_bytes, max_element_bytes=max_element_bytes)
    trace = read_bytes(text_of(elements, separator), limits=limits)
    good = elements.count(GOOD)
    assert names(trace) == [str(i) for i in range(good)]
    assert (trace.events_read, trace.malformed_events) == (good, len(elements) - good)
    assert (trace.status, trace.metadata.record_shapes) == ("COMPLETE", True)


BROKEN = [
    '{"ph": }',
    '{"ph": "X", "ts": 1 2}',
    '{"ph": "X", "name": "5" wide"}',
    '{"ph": "X", "args": {"a": 1}',
]
SIMPLE = ["null", "1.5", '"text"', "[]", "[1]"]


@pytest.mark.slow
@settings(deadline=None)
@given(
    elements=st.lists(st.sampled_from([GOOD, GOOD, GOOD, *SIMPLE, *BROKEN]), min_size=1, max_size=40),
    chunk_bytes=st.sampled_from([7, 60, 150, 1 << 22]),
    max_element_bytes=st.sampled_from([320, 8 << 20]),
)
def test_all_events_between_simple_values_and_broken_events_are_read(
    elements: list[str], chunk_bytes: int, max_element_bytes: int
) -> None:
    limits = Limits(chunk_bytes=chunk_bytes, max_element_bytes=max_element_bytes)
    trace = read_bytes(text_of(elements), limits=limits)
    good = elements.count(GOOD)
    assert names(trace) == [str(i) for i in range(good)]
    assert trace.events_read == good


def test_an_event_after_broken_ones_that_never_close_is_no_part_of_them() -> None:
    """The broken ones outgrow the limit together; the event after them does not."""
    elements = [BROKEN[3], BROKEN[2], BROKEN[0], BROKEN[0], GOOD, BROKEN[2]]
    trace = read_bytes(text_of(elements), limits=Limits(max_element_bytes=320))
    assert names(trace) == ["0"]
    assert trace.malformed_events == len(elements) - 1


LONG = {
    "a string": '"' + "x" * 2_000 + '"',
    "a string like events": '"' + r"},{\"ph\": 1" * 60 + '"',
    "numbers": "[" + "1," * 1_000 + "1]",
    "lists": "[" + "[[],1]," * 300 + "1]",
    "an event": json.dumps(span("x" * 2_000)),
}


@pytest.mark.slow
@pytest.mark.parametrize("chunk_bytes", [1 << 22, 700, 7])
@pytest.mark.parametrize("after", [[], ["null"], ["[]", "1"]])
@pytest.mark.parametrize("long", LONG.values(), ids=LONG)
def test_a_value_over_the_limit_costs_only_itself(long: str, after: list[str], chunk_bytes: int) -> None:
    limits = Limits(chunk_bytes=chunk_bytes, max_element_bytes=400)
    trace = read_bytes(text_of([GOOD, GOOD, long, *after, GOOD, GOOD, long]), limits=limits)
    assert [name for name in names(trace) if len(name) == 1] == ["0", "1", "2", "3"]
    assert trace.events_read + trace.malformed_events == 6 + len(after)
    assert (trace.status, trace.metadata.record_shapes) == ("COMPLETE", True)


@with_each("value", ["null", "[]", '"text"', "{}"])
def test_a_run_of_values_longer_than_any_bound(value: str) -> None:
    """More text than the largest element may have."""
    max_element_bytes = 20_000
    count = max(2_000, max_element_bytes // len(value))
    content = text_of([GOOD, *[value] * count, GOOD, GOOD, "null", GOOD])
    trace = read_bytes(content, limits=Limits(max_element_bytes=max_element_bytes))
    assert names(trace) == ["0", "1", "2", "3"]
    assert (trace.malformed_events, trace.status) == (count + 1, "COMPLETE")


@pytest.mark.slow
def test_the_usual_bounds() -> None:
    count = (9 << 20) // len('"text",')
    trace = read_bytes(text_of([GOOD, *['"text"'] * count, GOOD]))
    assert (names(trace), trace.malformed_events) == (["0", "1"], count)


def test_a_cut_off_file_that_ends_in_other_values() -> None:
    content = document(span("a"), "null", span("b"), "[]", "1")
    trace = read_bytes(content.removesuffix(b"1]}"))
    assert names(trace) == ["a", "b"]
    assert (trace.malformed_events, trace.status) == (2, "PARTIAL")
