"""Analyses in threads of the tests' process, for tests on results and not on processes.

An analysis process spends half a second of computing on imports. test_analysis_queue.py, test_processes.py,
test_slices.py and tests/test_plugin_process.py test such processes.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from tb_gpudiag.errors import Defect, GpudiagError
from tb_gpudiag.service.analyses import worker_pool
from tb_gpudiag.service.processes import gate
from tb_gpudiag.service.processes.child import ChildMessage, MessageKind


class InProcess:
    """Stands in for a Child: answers in a thread. It cannot be killed: it ends."""

    last_output = b""
    is_closed = is_used = False

    def __init__(self, module: str, *, nice: int = 0, **_: object) -> None:
        self.nice = nice
        self._answer = importlib.import_module(module).answer

    def ask(self, request: dict[str, Any], within_s: float | None = None) -> ChildMessage:
        *_, answer = self.messages(request, within_s)
        return answer

    def messages(self, request: dict[str, Any], _within_s: float | None = None) -> Iterator[ChildMessage]:
        said: SimpleQueue[ChildMessage | GpudiagError] = SimpleQueue()

        def run() -> None:
            try:
                said.put(self._answer(request, InProcessReply(said)))
            except GpudiagError as error:
                said.put(error)
            except Exception as error:
                said.put(Defect.of(error))

        threading.Thread(target=run, daemon=True).start()
        while True:
            message = said.get()
            if isinstance(message, GpudiagError):
                raise message
            yield message
            if message.kind is MessageKind.ANSWER:
                return

    def kill(self) -> None:
        """Let it end by itself."""

    stop = close = forget = kill


class InProcessReply:
    """Stands in for a Reply."""

    def __init__(self, said: SimpleQueue[Any]) -> None:
        self._said = said

    def progress(self, share: float, stage: str) -> None:
        self._said.put(ChildMessage({"share": share, "stage": stage}, kind=MessageKind.PROGRESS))

    def piece(self, content: bytes) -> None:
        self._said.put(ChildMessage(content=content, kind=MessageKind.PIECE))

    def bound_memory(self, limit_bytes: int) -> None:
        """Tests share the process with all others."""


@contextlib.contextmanager
def analyses_in_process() -> Iterator[None]:
    """Start threads and not processes within this block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_pool, "Child", InProcess)
        patch.setattr(gate, "Child", InProcess)
        patch.setattr(gate, "kept", threading.local())
        yield


if __name__ == "__main__":
    # `python -m tests.service.in_process ARGUMENTS` is `gpudiag ARGUMENTS` with analyses in threads.
    from tb_gpudiag.cli.main import main

    with analyses_in_process():
        sys.exit(main(sys.argv[1:]))
