"""The process that makes a file may end at any time, or not start: nothing of it is left then."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tb_gpudiag.errors import JobFailed
from tb_gpudiag.service.exports import MOST_AT_ONCE, READY, Exports, Order
from tb_gpudiag.trace.files.find import TraceFile

ORDER = Order("entry", TraceFile("trace.json", ".", "worker", "", 1, 0, "id"), "json", 1 << 30, os.getpid())


def program(tmp_path: Path, code: str) -> tuple[str, ...]:
    path = tmp_path / "program.py"
    path.write_text(code)
    return sys.executable, "-S", str(path)


def test_content_is_passed_on_as_it_comes(tmp_path: Path) -> None:
    made = Exports(
        program(tmp_path, f"import sys; sys.stdin.readline(); print({READY.decode()!r} 'content')")
    )
    for _ in range(MOST_AT_ONCE + 1):
        assert b"".join(made.start(ORDER)) == b"content" + os.linesep.encode()


@pytest.mark.parametrize("code", ["", "import os; os.close(0)", "import sys; sys.stdin.readline()"])
def test_a_process_that_ends_is_an_error_and_leaves_room(tmp_path: Path, code: str) -> None:
    made = Exports(program(tmp_path, code))
    for _ in range(MOST_AT_ONCE + 1):
        with pytest.raises(JobFailed, match="ended or hangs"):
            made.start(ORDER)


def test_a_process_that_cannot_start_is_an_error_and_leaves_room(tmp_path: Path) -> None:
    made = Exports((str(tmp_path / "none"),))
    for _ in range(MOST_AT_ONCE + 1):
        with pytest.raises(JobFailed, match="No process could be started"):
            made.start(ORDER)
