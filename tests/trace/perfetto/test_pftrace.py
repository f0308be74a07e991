"""A `.pftrace`, encoded with Perfetto's own classes as torch does, says what JSON of the same events says."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpudiag.errors import NotATrace, TooLarge
from tb_gpudiag.trace.events import Trace
from tb_gpudiag.trace.files.file_names import is_pftrace
from tb_gpudiag.trace.files.find import find_traces
from tb_gpudiag.trace.perfetto import pftrace
from tb_gpudiag.trace.perfetto.messages import Messages, Wire
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.vocabulary.recorded import Category
from tests.builder.pftrace import Encoder, encoded, perfetto
from tests.conftest import SHARED_TRACES
from tests.with_each import with_each

EVENTS: list[dict[str, Any]] = [
    {"ph": "M", "name": "thread_name", "pid": 42, "tid": 43, "args": {"name": "thread 43 (python)"}},
    {
        "ph": "X",
        "cat": "user_annotation",
        "name": "ProfilerStep#7",
        "pid": 42,
        "tid": 43,
        "ts": 0.5,
        "dur": 90.25,
    },
    {
        "ph": "X",
        "cat": "cpu_op",
        "name": "aten::mm",
        "pid": 42,
        "tid": 43,
        "ts": 1,
        "dur": 20,
        "args": {
            "External id": 5,
            "Sequence number": 9,
            "Input Dims": [[4, 8], [8, 2], []],
            "Input type": ["float", "float", ""],
            "Input Strides": [[8, 1], [2, 1], []],
        },
    },
    {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": "cudaLaunchKernel",
        "pid": 42,
        "tid": 43,
        "ts": 2,
        "dur": 3,
        "args": {"correlation": 77, "External id": 5},
    },
    {
        "ph": "X",
        "cat": "kernel",
        "name": "gemm<float>",
        "pid": 0,
        "tid": 7,
        "ts": 30,
        "dur": 12.125,
        "args": {
            "device": 0,
            "stream": 7,
            "correlation": 77,
            "registers per thread": 40,
            "grid": [3, 2, 1],
            "block": [128, 1, 1],
            "graph node id": 6,
        },
    },
    {
        "ph": "X",
        "cat": "gpu_memcpy",
        "name": "Memcpy",
        "pid": 0,
        "tid": 20,
        "ts": 31,
        "dur": 1,
        "args": {"device": 0, "stream": 20, "correlation": 78, "bytes": 4096},
    },
    {
        "ph": "X",
        "cat": "cuda_sync",
        "name": "Stream Wait Event",
        "pid": 0,
        "tid": 7,
        "ts": 29,
        "dur": 0.5,
        "args": {
            "cuda_sync_kind": "Stream Wait Event",
            "stream": 7,
            "device": 0,
            "correlation": 80,
            "wait_on_stream": 20,
            "wait_on_cuda_event_record_corr_id": 79,
        },
    },
    {
        "ph": "X",
        "cat": "kernel",
        "name": "ncclDevKernel_AllReduce",
        "pid": 1,
        "tid": 9,
        "ts": 50,
        "dur": 4,
        "args": {
            "device": 1,
            "stream": 9,
            "Collective name": "allreduce",
            "In msg nelems": 64,
            "dtype": "Float",
        },
    },
]


def as_json(events: list[dict[str, Any]]) -> bytes:
    return json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()


def read(content: bytes, folder: Path, name: str = "a.pftrace") -> Trace:
    path = folder / name
    path.write_bytes(content)
    return read_trace(str(path))


def rows(trace: Trace) -> list[tuple[Any, ...]]:
    """Return each span as texts and numbers, sorted."""
    events = trace.events
    tables: dict[str, list[Any]] = {
        "name": events.names,
        "thread": events.threads,
        "shapes": events.input_shapes,
        "types": events.input_types,
        "strides": events.input_strides,
        "message": events.messages,
    }
    numbers = (
        *("category", "start_ns", "duration_ns", "correlation", "external_id", "device", "stream", "bytes"),
        *("python_id", "python_parent", "sequence", "forward_thread", "blocks", "registers"),
    )
    columns = [np.nan_to_num(getattr(events, key), nan=-1).tolist() for key in numbers]
    for key, table in tables.items():
        texts = [str(text) for text in table]
        columns.append([texts[i] if i >= 0 else "" for i in getattr(events, key).tolist()])
    return sorted(zip(*columns, strict=True))


def test_it_says_what_json_says(tmp_path: Path) -> None:
    trace = read(encoded(as_json(EVENTS)), tmp_path)
    same = read(as_json(EVENTS), tmp_path, "a.json")
    named = [row for row in rows(same) if row]
    assert len(named) == 7
    without_names = [tuple(str(x).replace("name='stream 7 '", "name=''") for x in row) for row in rows(trace)]
    assert without_names == [tuple(map(str, row)) for row in named]
    assert trace.status == "COMPLETE"
    assert trace.start_ns - same.start_ns > 10**18  # it has no base time: its times are absolute
    assert trace.events.threads[trace.events.thread[trace.events.where(Category.CPU_OP)[0]]].name == (
        "thread 43 (python)"
    )


def test_copies_of_the_same_backend_are_named_in_json(tmp_path: Path) -> None:
    copy = {
        **EVENTS[5],
        "args": {**EVENTS[5]["args"], "copy kind": "HtoD", "src kind": "pageable", "dst kind": "device"},
    }
    trace = read(as_json([*EVENTS, copy]), tmp_path, "a.json")
    assert {"Memcpy", "Memcpy HtoD (Pageable -> Device)"} < set(trace.events.names)


def test_counters_are_of_their_gpu(tmp_path: Path) -> None:
    encoder = Encoder()
    for i in range(3):
        encoder.counter(Decimal(10 * i), 1, 1_980.5 - i)
    trace = read(encoder.encode(EVENTS), tmp_path)
    (counter,) = trace.counters
    assert (counter.name, counter.unit, counter.device) == ("SM Clock (MHz)", "MHz", 1)
    assert counter.value.tolist() == [1_980.5, 1_979.5, 1_978.5]


def test_a_file_that_is_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    content = encoded(as_json(EVENTS))
    whole = len(read(content, tmp_path).events)
    trace = read(content[:-3], tmp_path)
    assert (trace.status, len(trace.events)) == ("PARTIAL", whole - 1)


def test_a_slice_without_an_end_has_no_duration(tmp_path: Path) -> None:
    made = perfetto.Trace.FromString(encoded(as_json(EVENTS[:3])))
    assert made.packet[-1].track_event.type == perfetto.TrackEvent.TYPE_SLICE_END
    del made.packet[-1]
    trace = read(made.SerializeToString(), tmp_path)
    assert sorted(trace.events.duration_ns.tolist()) == [0, 90_250]
    assert any("without a usable duration" in note for note in trace.notes)


def test_other_programs_are_refused(tmp_path: Path) -> None:
    crossed = perfetto.Trace.FromString(encoded(as_json(EVENTS[:3])))
    crossed.packet[-1].track_event.track_uuid = 999
    with pytest.raises(NotATrace, match="torch did not write"):
        read(crossed.SerializeToString(), tmp_path)
    other = perfetto.Trace()
    for i in range(9):
        other.packet.add(timestamp=i).track_event.type = perfetto.TrackEvent.TYPE_INSTANT
    with pytest.raises(NotATrace, match="without operators") as refused:
        read(other.SerializeToString(), tmp_path)
    assert "export_chrome_trace" in refused.value.remedy


def test_a_file_that_is_too_large_says_what_to_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pftrace, "MOST_BYTES", 100)
    with pytest.raises(TooLarge, match="more than 100 bytes") as refused:
        read(encoded(as_json(EVENTS)), tmp_path)
    assert ".json.gz" in refused.value.remedy


def test_a_folder_lists_it(tmp_path: Path) -> None:
    (tmp_path / "rank0.pftrace.gz").write_bytes(gzip.compress(encoded(as_json(EVENTS))))
    (tmp_path / "notes.pftrace").write_text("a text")
    found = find_traces(str(tmp_path))
    assert [file.worker for file in found.files] == ["rank0"]
    assert len(read_trace(found.files[0].path).events) == 7


def test_any_number_of_packets() -> None:
    content = encoded(as_json(EVENTS))
    assert all(is_pftrace(content[:size]) for size in (40, 300, len(content)))


@with_each(
    "text", [b"", b"\n", b"\nhello world", b'\n{"traceEvents": []}', b"\n\x10" + b"\x00" * 30, b"\x80\x04."]
)
def test_no_packets(text: bytes) -> None:
    assert not is_pftrace(text)


MESSAGES = st.lists(
    st.builds(
        perfetto.DebugAnnotation,
        name=st.text(max_size=5),
        int_value=st.integers(-(2**63), 2**63 - 1),
        double_value=st.floats(allow_nan=False),
        array_values=st.lists(
            st.builds(perfetto.DebugAnnotation, string_value=st.sampled_from(["", "é", "x" * 200])),
            max_size=2,
        ),
    ),
    min_size=60,  # so that they are read at once
    max_size=62,
)


def places(contents: list[bytes]) -> tuple[Wire, Messages]:
    ends = np.cumsum([len(content) for content in contents])
    return Wire(b"".join(contents)), Messages(np.concatenate([[0], ends[:-1]]), ends)


def one_by_one(wire: Wire, messages: Messages, wanted: set[int]) -> list[tuple[int, ...]]:
    return [
        (row, *field)
        for row, (start, end) in enumerate(zip(*map(np.ndarray.tolist, messages), strict=True))
        for field in wire.walk(start, end)
        if field[0] in wanted
    ]


def at_once(wire: Wire, messages: Messages, wanted: set[int]) -> list[tuple[int, ...]]:
    entries = wire.entries(messages, *wanted)
    columns = (entries.message, entries.number, entries.value, *entries.inside)
    return list(zip(*map(np.ndarray.tolist, columns), strict=True))


@given(MESSAGES)
def test_many_messages_are_read_as_one_by_one(made: list[Any]) -> None:
    wire, messages = places([message.SerializeToString() for message in made])
    wanted = {4, 5, 10, 12}
    found = at_once(wire, messages, wanted)
    assert found == one_by_one(wire, messages, wanted)
    assert [value for _, number, value, *_ in found if number == 4] == [
        each.int_value for each in made if each.HasField("int_value")
    ]
    assert wire.broken == 0


@given(st.lists(st.binary(max_size=12), min_size=60, max_size=80))
def test_damage_is_the_same_either_way(contents: list[bytes]) -> None:
    wire, messages = places(contents)
    wanted = set(range(1, 40))
    found = at_once(wire, messages, wanted)
    broken, wire.broken = wire.broken, 0
    assert found == one_by_one(wire, messages, wanted)
    assert broken == wire.broken


@pytest.mark.real
@pytest.mark.parametrize("folder", ["h100_bert_small", "mi300_falconsai", "a100_cuda_sync_events"])
def test_a_real_trace_says_the_same(folder: str, tmp_path: Path) -> None:
    path = min((SHARED_TRACES / folder).rglob("*.json*"), default=None)
    if path is None:
        pytest.skip("no real traces here")
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    trace, same = read(encoded(text), tmp_path), read_trace(str(path))
    for category in (Category.CPU_OP, Category.RUNTIME, Category.KERNEL, Category.PYTHON_FUNCTION):
        first = [
            int(each.events.start_ns[each.events.where(Category.RUNTIME)].min()) for each in (trace, same)
        ]
        ours, theirs = (
            sorted(
                (
                    each.events.start_ns[i] - start,
                    each.events.names[each.events.name[i]],
                    each.events.correlation[i],
                )
                for i in each.events.where(category).tolist()
            )
            for each, start in zip((trace, same), first, strict=True)
        )
        assert ours == theirs
