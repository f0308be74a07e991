"""Traces of Triton's proton: a document for each stream becomes one trace."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.verdict import find_verdict
from tb_gpudiag.trace.files.find import find_traces
from tb_gpudiag.trace.read import NOTE, is_proton_trace, joined, read_trace
from tests.with_each import with_each

NAME = 'odd {"args":{ ]}\n{"displayTimeUnit":"us","traceEvents":['


def stream(number: int, first_us: float, kernels: int = 40, name: str = "matmul_kernel") -> bytes:
    """Return the document of a stream, as nlohmann's JSON library writes it: keys sorted, nothing between."""
    events = [
        {
            "args": {"call_stack": ["ROOT", "train", name]},
            "cat": "kernel",
            "dur": 30.5,
            "name": name,
            "ph": "X",
            "tid": number,
            "ts": first_us + 100 * i,
        }
        for i in range(kernels)
    ]
    document = {"displayTimeUnit": "us", "traceEvents": events}
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def test_all_streams_are_read(tmp_path: Path) -> None:
    path = tmp_path / "run.chrome_trace"
    path.write_bytes(stream(7, 0) + stream(13, 50, name=NAME) + stream(14, 60))
    trace = read_trace(str(path))
    events = trace.events
    assert (trace.events_read, trace.malformed_events, trace.status) == (120, 0, "COMPLETE")
    assert sorted(set(events.stream.tolist())) == [7, 13, 14]
    assert set(events.device.tolist()) == {0}
    assert sorted(events.names) == ["matmul_kernel", NAME]
    assert NOTE in trace.notes
    facts = Facts(trace)
    assert facts.gpu.span.duration_ns == (39 * 100 + 60) * 1000 + 30_500
    assert find_verdict(facts).limiter == "unknown"


@given(st.lists(st.integers(1, 400), min_size=1, max_size=40))
def test_where_blocks_end_does_not_matter(sizes: list[int]) -> None:
    text = stream(7, 0, 5) + stream(13, 50, 5, NAME)
    whole = b"".join(joined(iter([text]), len(text)))
    blocks, at = [], 0
    for size in sizes:
        blocks.append(text[at : at + size])
        at += size
    assert b"".join(joined(iter([*blocks, text[at:]]), len(text))) == whole
    assert len(json.loads(whole)["traceEvents"]) == 10


def test_it_is_found_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "a.chrome_trace").write_bytes(stream(7, 0))
    (tmp_path / "b.chrome_trace").write_bytes(b"{}")
    assert [(file.worker, file.kind) for file in find_traces(str(tmp_path)).files] == [("a", "trace")]


@with_each("text", [b"{}", b'{"displayTimeUnit":"ms","traceEvents":[]}', stream(7, 0)[1:]])
def test_others_are_not(text: bytes) -> None:
    assert not is_proton_trace(text)
