"""Text around the events: any order, any white space, anything else at the top level."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.errors import EmptyFile, NotATrace, TooDeep, TraceError
from tb_gpudiag.trace.files.find import find_traces
from tb_gpudiag.trace.files.source import Limits
from tb_gpudiag.trace.read import read_trace
from tests.trace.support import document, names, read_bytes, rows, span
from tests.with_each import with_each

EVENTS = json.dumps([span("first", 1), span("second", 2)])
SMALL_CHUNKS = Limits(chunk_bytes=16)


@with_each(
    "text",
    [
        EVENTS,
        f"  \n{EVENTS}\n",
        f'{{"traceEvents":{EVENTS}}}',
        f'{{"traceEvents" \n\t:\r\n {EVENTS} , "x": 1 }}',
        f'{{"a": [1, "]}}", {{"b": "[{{"}}], "traceEvents": {EVENTS}, "c": null, "d": -1.5e3, "e": "\\"]"}}',
        f'{{"a": "traceEvents\\": [", "traceEvents": {EVENTS}}}',
        f'{{"trace\\u0045vents": {EVENTS}}}',
        f'{{"traceEvents": {EVENTS}, "deviceProperties": []}}',
        f'{{"traceEvents": {EVENTS}, "deviceProperties": [{{"id": 0}}, {{"id": 1}}], "x": [{{}}, {{}}]}}',
        f'{{"traceEvents": {EVENTS[:-2]}, "args": {{"a": [{{"b": 1}}, {{"b": 2}}], "c": 3}}}}], "x": 1}}',
        f'{{"x": 1, "x": 2, "traceEvents": {EVENTS}, "x": 3}}',
        f'{{"x": NaN, "y": -Infinity, "traceEvents": {EVENTS}, "z": inf}}',
        json.dumps({"k": 1, "traceEvents": json.loads(EVENTS), "z": {"a": [[]]}}, indent=4),
        "\ufeff" + EVENTS,
    ],
)
@with_each("limits", [Limits(), SMALL_CHUNKS])
def test_forms_of_the_document(text: str, limits: Limits) -> None:
    trace = read_bytes(text.encode(), limits=limits)
    assert (names(trace), trace.status, trace.malformed_events) == (["first", "second"], "COMPLETE", 0)
    assert trace.notes == []


@pytest.mark.parametrize("first", [True, False])
def test_metadata_before_and_after_the_events(first: bool) -> None:
    top = {
        "schemaVersion": 1,
        "baseTimeNanoseconds": 1767189312000000123,
        "deviceProperties": [{"id": 0, "name": ""}],
        "distributedInfo": {"rank": 3, "world_size": 8},
        "record_shapes": 1,
        "profile_memory": 1,
        "with_stack": 1,
        "with_flops": 1,
        "with_modules": 1,
        "simulated": True,
        "ERROR": ["", "ERROR:2026-01-08 DeviceProperties.cpp:47] gpuGetDeviceCount failed with code 35"],
    }
    events = {"traceEvents": json.loads(EVENTS)}
    whole = {**top, **events} if first else {**events, **top}
    metadata = read_bytes(json.dumps(whole).encode()).metadata
    assert metadata.base_time_ns == 1767189312000000123  # not exact in float64
    assert metadata.device_properties == [{"id": 0, "name": ""}]
    assert metadata.distributed == {"rank": 3, "world_size": 8}
    assert (metadata.record_shapes, metadata.with_flops, metadata.simulated) == (True, True, True)
    assert metadata.gpu_error == 35


def test_metadata_of_an_unexpected_type_is_skipped() -> None:
    odd = {
        "deviceProperties": {"0": "x"},
        "distributedInfo": [1],
        "baseTimeNanoseconds": {},
        "simulated": "no",
        "ERROR": [35, None, "gpuGetDeviceCount failed with code 99999"],
    }
    metadata = read_bytes(document(span(), **odd)).metadata
    assert (metadata.device_properties, metadata.distributed, metadata.base_time_ns) == ([], {}, 0)
    assert (metadata.simulated, metadata.gpu_error) == (False, 0)


def test_metadata_that_is_not_json_is_noted() -> None:
    text = document(span("kept")).replace(b"{", b'{"distributedInfo": {"rank": oops}, ', 1)
    trace = read_bytes(text)
    assert (names(trace), trace.metadata.distributed) == (["kept"], {})
    assert trace.notes == ["the value of distributedInfo could not be read"]


@with_each("value", ['say "x"', '"', 'x:0"', '"a", "b": "c', '"]}, {"', 'the "end" of, "it" {all}'])
@with_each("limits", [Limits(), SMALL_CHUNKS])
def test_a_quote_that_torch_did_not_escape_costs_its_value(value: str, limits: Limits) -> None:
    """As torch writes a text of add_metadata: on a line of its own, before its own entries."""
    text = f"""{{
    "schemaVersion": 1,
      "note": "{value}",
      "host_name": "vm",
    "displayTimeUnit": "ms",
    "baseTimeNanoseconds": 1790857026000000000,
    "traceEvents": {EVENTS}
    }}"""
    trace = read_bytes(text.encode(), limits=limits)
    assert names(trace) == ["first", "second"]
    assert trace.metadata.base_time_ns == 1790857026000000000
    (note,) = trace.notes
    assert "add_metadata" in note


def test_the_last_of_equal_top_level_keys_wins() -> None:
    trace = read_bytes(
        b'{"record_shapes": 1, "traceEvents": [' + json.dumps(span()).encode() + b'], "record_shapes": 0}'
    )
    assert trace.metadata.record_shapes is False


def test_two_lists_of_events_are_both_read() -> None:
    trace = read_bytes(
        f'{{"traceEvents": {EVENTS}, "x": 1, "traceEvents": [{json.dumps(span("third", 3))}]}}'.encode()
    )
    assert names(trace) == ["first", "second", "third"]
    assert len(trace.notes) == 1


@pytest.mark.parametrize("where", ["before", "after"])
def test_large_values_are_skipped(where: str) -> None:
    large = f'"large": ["{"},{" * 40_000}", {"[" * 50}{"]" * 50}]'
    text = (
        f'{{{large}, "traceEvents": {EVENTS}}}'
        if where == "before"
        else f'{{"traceEvents": {EVENTS}, {large}}}'
    )
    trace = read_bytes(text.encode(), limits=Limits(chunk_bytes=1000, max_element_bytes=5000))
    assert (names(trace), trace.status) == (["first", "second"], "COMPLETE")


def test_metadata_over_the_limit_is_noted() -> None:
    trace = read_bytes(
        document(span(), distributedInfo={"x": "y" * 500}), limits=Limits(max_metadata_bytes=100)
    )
    assert trace.metadata.distributed == {}
    assert trace.notes == ["the value of distributedInfo could not be read"]


def test_a_trace_may_have_no_events() -> None:
    trace = read_bytes(b'{"schemaVersion": 1, "traceEvents": []}')
    assert (len(trace.events), len(trace.memory), trace.events_read, trace.start_ns) == (0, 0, 0, 0)
    assert trace.status == "COMPLETE"


def test_text_after_the_events_need_not_be_json() -> None:
    trace = read_bytes(f'{{"traceEvents": {EVENTS}, oops'.encode())
    assert (names(trace), trace.status) == (["first", "second"], "PARTIAL")
    assert len(trace.notes) == 1


@with_each(
    ("content", "error"),
    [
        (b"", EmptyFile),
        (b"   \n", NotATrace),
        (b'{\n  "schema": "1.1.1-chakra.0.0.4", "pid": 7, "time": "2026-01-01",\n  "nodes": [', NotATrace),
        (b"hello", NotATrace),
        (b"\x00\x01\x02", NotATrace),
        (b"42", NotATrace),
        (b'"traceEvents"', NotATrace),
        (b"{}", NotATrace),
        (b"[]", NotATrace),
        (b"[1, 2, 3]", NotATrace),
        (b'[{"a": 1}]', NotATrace),
        (b'{"a": {"traceEvents": []}}', NotATrace),
        (b'{"traceEvents": null}', NotATrace),
        (b'{"traceEvents": {"ph": "X"}}', NotATrace),
        (b'{"schemaVersion": 1, "deviceProp', NotATrace),
        (b"{]", NotATrace),
        (b"[" * 100_000, TooDeep),
        (b'{"a":' * 100_000, TooDeep),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", TooDeep),
        (b'{"traceEvents": [' + b"[" * 100_000 + b"]" * 100_000 + b"]}", TooDeep),
        (
            b'{"traceEvents": [{"ph": "X", "args": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}]}",
            TooDeep,
        ),
        (b'{"traceEvents": [{"ph": "X", "args": ' + b'{"a":' * 100_000, TooDeep),
    ],
)
@with_each("limits", [Limits(), Limits(chunk_bytes=500)])
def test_other_files_are_refused(content: bytes, error: type[TraceError], limits: Limits) -> None:
    with pytest.raises(TraceError) as raised:
        read_bytes(content, limits=limits)
    assert type(raised.value) is error
    assert raised.value.where.endswith(".pt.trace.json")
    assert raised.value.what
    assert raised.value.remedy
    assert "\n" not in str(raised.value)


def test_spans_are_sorted_by_start_then_by_file_order() -> None:
    trace = read_bytes(document(span("late", 5), span("a", 2), span("b", 2), span("early", 1.5)))
    assert [(row[3], row[0]) for row in rows(trace)] == [
        ("early", 1500),
        ("a", 2000),
        ("b", 2000),
        ("late", 5000),
    ]
    assert trace.start_ns == 1500
    assert trace.events.start_ns.tolist() == [0, 500, 500, 3500]


def test_an_execution_trace_is_named_and_refused(torch: Any, tmp_path: Path) -> None:
    path = tmp_path / "recorded.et.json"
    observer = torch.profiler.ExecutionTraceObserver().register_callback(str(path))
    observer.start()
    torch.ones(3).sum()
    observer.stop()
    observer.unregister_callback()
    with pytest.raises(NotATrace, match=r"ExecutionTraceObserver.*name the profiler's trace"):
        read_trace(str(path))
    assert find_traces(str(tmp_path)).files == []
