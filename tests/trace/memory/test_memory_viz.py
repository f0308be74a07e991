"""Pages that torch.cuda._memory_viz saves, and its own figures of real snapshots."""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.errors import NotATrace, TooLarge, Unsafe
from tb_gpudiag.trace.files.file_names import is_memory_viz_page, pickle_of_page
from tb_gpudiag.trace.files.find import find_traces
from tb_gpudiag.trace.files.source import Limits
from tb_gpudiag.trace.memory.snapshot_pickle import load_plain
from tb_gpudiag.trace.read import read_trace
from tests.builder import SnapshotBuilder

SNAPSHOTS = (
    "compile_context_forward.pickle",
    "many_segments_forward.pickle",
    "memory_viz_page.html",
    "reserved_not_used.pickle",
    "small.pickle",
)


def page(data: bytes) -> bytes:
    """Return the page, with the padding that torch adds."""
    data += b"\x00" * (3 - len(data) % 3)
    files = json.dumps([{"name": "snapshot.pickle", "base64": base64.b64encode(data).decode()}])
    return (
        '\n<!DOCTYPE html>\n<html>\n<head>\n</head>\n<body>\n<script type="module">\n'
        'import {add_local_files} from "https://example.org/MemoryViz.js"\n'
        f"const local_files = {files}\nadd_local_files(local_files, 'Segments')\n</script>\n</body>\n"
    ).encode()


def small() -> SnapshotBuilder:
    snapshot = SnapshotBuilder()
    snapshot.segment(1 << 20)
    snapshot.allocate(5_000, at=1, stack=["train.py(3): main"])
    return snapshot


def test_a_page_is_read_like_the_snapshot_in_it(tmp_path: Path) -> None:
    whole = read_trace(str(small().write(tmp_path)))
    path = tmp_path / "view.html"
    path.write_bytes(page(pickle.dumps(small().document())))
    found = read_trace(str(path))
    assert found.kind == "snapshot"
    assert found.memory.stacks == whole.memory.stacks
    assert found.memory.allocated.tolist() == whole.memory.allocated.tolist()


def test_pages_in_a_directory_are_found_by_their_content(tmp_path: Path) -> None:
    (tmp_path / "view.html").write_bytes(page(pickle.dumps(small().document())))
    (tmp_path / "report.html").write_bytes(b"<!DOCTYPE html><html><p>add_local_files</p></html>")
    assert [(file.worker, file.kind) for file in find_traces(str(tmp_path)).files] == [("view", "snapshot")]


def test_a_page_is_as_untrusted_as_a_pickle(tmp_path: Path) -> None:
    path = tmp_path / "view.html"
    path.write_bytes(page(pickle.dumps(print)))
    with pytest.raises(Unsafe):
        read_trace(str(path))
    path.write_bytes(page(pickle.dumps(small().document())))
    with pytest.raises(TooLarge):
        read_trace(str(path), limits=Limits(max_snapshot_bytes=1_000))
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.index(b"base64") + 500])
    with pytest.raises(NotATrace, match="ends in the middle"):
        read_trace(str(path))
    path.write_bytes(whole.replace(b'"gA', b'"g\xff'))
    with pytest.raises(NotATrace, match="damaged"):
        read_trace(str(path))


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("name", SNAPSHOTS)
def test_figures_equal_those_of_torch(name: str, shared_traces: Path) -> None:
    viz = pytest.importorskip("torch.cuda._memory_viz")
    path = shared_traces.parent / "snapshots" / name
    data = path.read_bytes()
    data = pickle_of_page(data, name) if is_memory_viz_page(data) else data
    document = load_plain(data, Limits(), name)
    read = read_trace(str(path))
    state = read.segments
    assert state is not None
    blocks = list(_blocks(viz.segments(document, format_flamegraph=str)))
    used = state.block_used
    requested = [requested for kind, requested, _ in blocks if kind.startswith("active")]
    assert sorted(state.block_requested_bytes[used].tolist()) == sorted(requested)
    for mask, begins in ((used, "active"), (~used, "inactive")):
        sizes = [size for kind, _, size in blocks if kind.startswith(begins)]
        assert sorted(state.block_bytes[mask].tolist()) == sorted(sizes)
    text = viz.segsum(document)
    assert f"segments: {len(state.bytes)}\n" in text
    assert f"total_reserved: {viz.Bytes(int(state.bytes.sum()))}\n" in text
    # It does not count memory that a stream still uses.
    allocated = sum(requested for kind, requested, _ in blocks if kind == "active_allocated")
    assert f"total_allocated: {viz.Bytes(allocated)}\n" in text
    last = int(read.memory.allocated[-1])
    # It counts what was asked for, and torch.cuda.memory_allocated() what that takes.
    taken = sum(-(-size // 512) * 512 for size in requested)
    assert last == taken or any("does not match the blocks" in note for note in read.notes)


def _blocks(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield state, requested and whole size of each block in torch's own text.

    A line is "stream;segment;state;frames bytes". What a block has in addition is in a line of its own.
    """
    state, requested, whole = "", 0, 0
    for line in text.splitlines():
        place, _, size = line.rpartition(" ")
        if place.endswith(";<gaps>"):
            whole += int(size)
            continue
        if state:
            yield state, requested, whole
        state, requested, whole = place.split(";")[2], int(size), int(size)
    yield state, requested, whole


@pytest.mark.usefixtures("torch")
def test_torch_writes_pages_that_are_read(tmp_path: Path) -> None:
    viz: Any = pytest.importorskip("torch.cuda._memory_viz")
    path = tmp_path / "view.html"
    path.write_text(viz.trace_plot(small().document()))
    assert read_trace(str(path)).kind == "snapshot"
