"""The process that makes a file may end at any time, or not start: nothing of it is left then."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tb_gpudiag.errors import LimitReached, NotATrace, ProcessFailed
from tb_gpudiag.service import exports
from tb_gpudiag.service.exports import MOST_AT_ONCE, Exports, Order
from tb_gpudiag.service.processes import child
from tb_gpudiag.trace.files.find import TraceFile

pytestmark = pytest.mark.slow  # each test starts processes

ORDER = Order("entry", TraceFile("trace.json", ".", "worker", "", 1, 0, "id"), "json", 1 << 30)


@pytest.fixture
def acting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Exports]:
    """Make exports whose process acts like this."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(exports, "MODULE", "acting")

    def make(act: str) -> Exports:
        code = f"""
            import os
            from tb_gpudiag.errors import NotATrace
            from tb_gpudiag.service.processes.child import ChildMessage

            def answer(request, reply):
                {act}
        """
        (tmp_path / "acting.py").write_text(textwrap.dedent(code))
        return Exports()

    return make


def test_content_is_passed_on_as_it_comes(acting: Callable[[str], Exports]) -> None:
    made = acting("reply.piece(b'con'); return ChildMessage(content=b'tent')")
    for _ in range(MOST_AT_ONCE + 1):
        export = made.start(ORDER)
        assert export.name == "worker.gpudiag.json"
        assert list(export) == [b"con", b"tent"]


def test_a_process_that_ends_is_an_error_and_leaves_room(acting: Callable[[str], Exports]) -> None:
    made = acting("os._exit(0)")
    for _ in range(MOST_AT_ONCE + 1):
        with pytest.raises(ProcessFailed, match="ended or hangs"):
            made.start(ORDER)


def test_one_that_nobody_takes_makes_room_for_others(
    acting: Callable[[str], Exports], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A browser pauses a download by reading no more of it."""
    made = acting("reply.piece(b'con'); reply.piece(bytes(8 << 20)); return ChildMessage()")
    paused = [iter(made.start(ORDER)) for _ in range(MOST_AT_ONCE)]
    assert [next(export) for export in paused] == [b"con"] * MOST_AT_ONCE
    with pytest.raises(LimitReached, match="other files"):
        made.start(ORDER)
    monkeypatch.setattr(exports, "TAKEN_WITHIN_S", -1.0)  # that long ago, by now
    for _ in range(MOST_AT_ONCE + 1):
        assert sum(map(len, made.start(ORDER))) == 3 + (8 << 20)
    with pytest.raises(child.ChildEnded):
        list(paused[0])


def test_it_has_the_priority_of_other_programs(acting: Callable[[str], Exports]) -> None:
    """A training that takes all cores would leave a process of low priority no time."""
    made = acting("return ChildMessage(content=str(os.nice(0)).encode())")
    assert int(b"".join(made.start(ORDER))) == os.nice(0)


def test_an_error_arrives_unchanged(acting: Callable[[str], Exports]) -> None:
    with pytest.raises(NotATrace, match="no trace"):
        acting("raise NotATrace('no trace')").start(ORDER)


def test_a_file_that_is_not_whole_is_an_error(acting: Callable[[str], Exports]) -> None:
    with pytest.raises(child.ChildEnded, match="exit code 3"):
        list(acting("reply.piece(b'con'); os._exit(3)").start(ORDER))


def test_a_process_that_cannot_start_is_an_error_and_leaves_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "PROGRAM", ("/nonexistent/python",))
    made = Exports()
    for _ in range(MOST_AT_ONCE + 1):
        with pytest.raises(ProcessFailed, match="No process could be started"):
            made.start(ORDER)
