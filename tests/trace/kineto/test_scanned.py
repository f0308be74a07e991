"""The compiled scanner and the plain parser read the same from every file. Skipped if it is not compiled."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_gpudiag.trace.assemble import Assembly
from tb_gpudiag.trace.credentials.removing import CredentialFilter
from tb_gpudiag.trace.events import Metadata
from tb_gpudiag.trace.files.source import Limits
from tb_gpudiag.trace.kineto import settle
from tb_gpudiag.trace.kineto import settle as parsing
from tb_gpudiag.trace.kineto.columns import part_of
from tb_gpudiag.trace.kineto.settle import GivenUp, Parser, Scanner
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.trace.trace_parts import TracePart
from tests.builder import Generation, TraceBuilder
from tests.conftest import SHARED_TRACES
from tests.fuzz.inputs import CORPUS
from tests.fuzz.odd_events import ARGUMENT_KEYS, CATEGORIES, EVENT_KEYS, event_with
from tests.real_traces import SMALL_FILES
from tests.simulator.diagnosed import simulated
from tests.some_values import EACH_GENERATION
from tests.trace.support import both_ways, document, read_bytes, same_trace, span
from tests.with_each import with_each

pytestmark = pytest.mark.skipif(not settle.available(), reason="the scanner is not compiled")

CORPUS_OF_TRACES = sorted((CORPUS / "trace").iterdir()) + sorted((CORPUS / "read").iterdir())


def assert_same(content: bytes, limits: Limits | None = None) -> None:
    same_trace(*both_ways(lambda: read_bytes(content, limits=limits)))


def assert_parsed_alike(text: bytes) -> None:
    """The same for an array of events."""
    alike: list[Any] = []
    for parser in parsers():
        part = parser.parse(text)
        assembly = Assembly()
        if part is not None:
            assembly.add(part)
        alike.append([part is None, assembly.trace(Metadata(), CredentialFilter())])
    same_trace(*alike)


@functools.cache
def parsers() -> list[Parser]:
    """Return one that has the scanner, and one without it."""
    with pytest.MonkeyPatch.context() as patch:
        with_scanner = Parser()
        patch.setattr(settle, "available", lambda: False)
        return [with_scanner, Parser()]


def scan(text: bytes) -> TracePart | None:
    """Read an array of events with the scanner alone."""
    fields = Scanner(200).scan(text)
    try:
        return None if fields is None else part_of(fields)
    except GivenUp:
        return None


def built(generation: Generation = "C2") -> TraceBuilder:
    trace = TraceBuilder(generation)
    main = trace.thread()
    main.step(0, at=0, us=1_000)
    main.frame('train.py(12): "train" é', at=0, us=1_000)
    main.loader(at=0, us=100)
    main.op("aten::mm", at=120, us=40, shapes=[[2, 3], [3, 4]])
    main.launch("gemm", at=130, us=10, runs_at=145, runs_us=250)
    main.launch("void nccl\\kernel", at=500, us=10, runs_at=545, runs_us=250)
    return trace


@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_built_traces(generation: Generation) -> None:
    assert_same(built(generation).bytes())


@pytest.mark.parametrize("generation", EACH_GENERATION)
def test_the_scanner_reads_what_torch_writes(generation: Generation) -> None:
    for event in json.loads(built(generation).bytes())["traceEvents"]:
        for indent in (None, 1):
            assert scan(json.dumps([event], indent=indent).encode()) is not None, event


@pytest.mark.slow
# Together they have every field of every category that the simulator writes.
@pytest.mark.parametrize(
    "scenario", ["module_loads", "occupancy", "launch_bound_fixed", "exposed_communication"]
)
def test_simulated_traces(scenario: str) -> None:
    assert_same(simulated(scenario).bytes())


@pytest.mark.parametrize("path", SMALL_FILES)
def test_real_traces(path: str) -> None:
    """What is scanned of the large ones is compared with what Python's json reads in test_real_traces.py."""
    same_trace(*both_ways(lambda: read_trace(str(SHARED_TRACES / path))))


@pytest.mark.slow
@with_each("path", CORPUS_OF_TRACES)
def test_what_the_fuzzer_found(path: Path) -> None:
    assert_same(path.read_bytes())


@pytest.mark.slow
@pytest.mark.parametrize("key", [*EVENT_KEYS, *ARGUMENT_KEYS])
def test_odd_values(key: str) -> None:
    """All values that the scanner does not give up on, in one array."""
    read = []
    for value in {**EVENT_KEYS, **ARGUMENT_KEYS}[key]:
        events = [event_with(key, value, category, argument=key in ARGUMENT_KEYS) for category in CATEGORIES]
        text = ", ".join(events).encode("utf-8", "surrogatepass")
        if scan(b"[" + text + b"]") is not None:
            read.append(text)
    joined = b"[" + b", ".join(read) + b"]"
    assert scan(joined) is not None
    assert_parsed_alike(joined)


@with_each(
    "event",
    [
        *(
            '{"ph": "X", "ph": "i", "ts": 1}',
            '{"ph": "X", "ts": 1, "args": {"Bytes": 1, "Bytes": 2}}',
            "{}",
            "7",
            "[]",
        ),
        *(
            '{"ph": "X", "ts": 1, "args": {}, "args": {"bytes": 2}}',
            '{"PH": "X", "ts": 1}',
            r'{"\u0070h": "X", "ts": 1}',
        ),
        *(
            '{"ph": "X", "ts": 1, "args": {"DEVICE": 3}}',
            '{"ph": "X", "ts": 1, "x": 1, "x": {"y": []}}',
            '{"ph" "X"}',
        ),
        *(
            '{"ph": "X", "ts": 1,}',
            '{"ph": "X" "ts": 1}',
            '{"ph": "X", "ts": 1}}',
            '{"ph": "C", "ts": 1, "args": {"a": 1}}',
        ),
        *(
            '{"ph": "M", "name": "thread_name", "pid": 7, "tid": 8, "args": {"name": "py\\u00e9"}}',
            '{"": 1, "ph": "X"}',
        ),
    ],
)
def test_odd_events(event: str) -> None:
    assert_parsed_alike(f"[{json.dumps(span('before'))}, {event}]".encode())
    assert_same(document(span("before"), event, span("after")))


@pytest.mark.slow
def test_broken_utf8() -> None:
    for broken in (
        b"\xff",
        b"\xc0\xaf",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xe2\x82",
        b"\xf0\x9f\x98\x80",
    ):
        content = document(span("before"), span("NAME"), span("after"))
        assert_same(content.replace(b"NAME", b"a" + broken))


def test_a_cut_text_is_given_up_wherever_it_ends() -> None:
    events = built().bytes()
    text = events[events.index(b"[", events.index(b"traceEvents")) : events.rindex(b"]") + 1]
    scanner = Scanner(1_000)
    assert scanner.scan(text) is not None
    for end in range(len(text)):
        assert scanner.scan(text[:end]) is None


def test_more_events_than_fit_are_given_up() -> None:
    assert Scanner(3).scan(b"[{},{},{}]") is not None
    assert Scanner(2).scan(b"[{},{},{}]") is None


@pytest.mark.parametrize(("slots", "given_up"), [(1 << 15, False), (1 << 14, True)])
def test_a_table_of_texts_in_which_the_search_for_one_never_ends_is_given_up(
    slots: int, given_up: bool
) -> None:
    _scan = pytest.importorskip("tb_gpudiag.trace.kineto._scan")
    count = (1 << 14) - 1  # one slot is free, or as many as texts have
    table = np.empty(slots, np.int32)
    rows = (np.empty((1, count), np.int64), np.empty(count, np.uint64), np.empty(count, np.int64))
    scanner = _scan.Scanner([(b"name", _scan.TEXT, 0)], [], *rows, np.empty(count, np.uint64), table)
    events = ",".join(f'{{"name":"kernel number {number}"}}' for number in range(count))
    assert (scanner.scan(f"[{events}]".encode()) == _scan.GIVEN_UP) == given_up


def test_deep_nesting_is_given_up_without_recursion() -> None:
    assert scan(b'[{"ph":"X","x":' + b"[" * 50 + b"]" * 50 + b"}]") is not None
    assert scan(b'[{"ph":"X","x":' + b"[" * 1_000_000) is None


def test_different_texts_beyond_the_table_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps([span()]).encode()
    assert Scanner(200, 8).scan(text) is not None
    assert Scanner(200, 4).scan(text) is None  # ph, cat, name, pid and tid
    monkeypatch.setattr(parsing, "MOST_TEXTS", 4)
    part = Parser().parse(text)
    assert part is not None
    assert part.read == 1


def test_a_parser_makes_room_for_all_that_can_be_in_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "read_plain", lambda text: None)
    parser = Parser()
    for events in ([b"{}"] * 5_000, [b'{"ph":"X","pid":%d}' % number for number in range(100, 900)]):
        for read in (1, len(events)):
            part = parser.parse(b"[" + b",".join(events[:read]) + b"]")
            assert part is not None
            assert part.read + part.malformed == read


def test_what_the_scanner_gives_up_is_read() -> None:
    text = json.dumps([span(), {**span("later"), "ts": 1e300}]).encode()
    assert scan(text) is None
    part = Parser().parse(text)
    assert part is not None
    assert part.read + part.malformed == 2


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(
    changes=st.lists(
        st.tuples(
            st.integers(0, 1 << 20),
            st.integers(0, 8),
            st.binary(max_size=8) | st.sampled_from([b'"', b"}", b",", b"\\"]),
        ),
        min_size=1,
        max_size=4,
    ),
    chunk_bytes=st.sampled_from([64, 300, 4 << 20]),
)
def test_changed_bytes(changes: list[tuple[int, int, bytes]], chunk_bytes: int) -> None:
    content = built().bytes()
    for at, removed, added in changes:
        at %= len(content)
        content = content[:at] + added + content[at + removed :]
    assert_same(content, Limits(chunk_bytes=chunk_bytes))
