"""Serve the training process: read one request per line on stdin, and answer each (see answers.py)."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import IO, Any, Final

from tb_gpudiag.service.processes.child_process import without_collecting
from tb_gpudiag.training.answers import Answer

STORE: Final = "store"
"""Names the helper that copies recordings to a store. Without a name, the helper diagnoses."""


def serve(out: IO[bytes], name: str = "") -> None:
    """Answer requests until stdin ends."""
    requests: SimpleQueue[dict[str, Any]] = SimpleQueue()

    def read() -> None:
        with contextlib.suppress(Exception):
            for line in sys.stdin.buffer:
                requests.put(json.loads(line))
        os._exit(0)

    threading.Thread(target=read, name="gpudiag-requests", daemon=True).start()
    answer = _answers(name)
    while True:
        try:
            answer(requests.get()).write(out)
        except OSError:  # the parent ended
            os._exit(0)


def _answers(name: str) -> Callable[[dict[str, Any]], Answer]:
    """Import and return what answers requests. Copying does not need what diagnosing imports."""
    if name == STORE:
        from tb_gpudiag.training.store import answer

        return answer
    with without_collecting():
        from tb_gpudiag.training.diagnosing import Diagnoses

    return Diagnoses().answer
