"""Serve the training process: read one request per line on stdin, and answer each (see answers.py)."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from queue import SimpleQueue
from typing import IO, Any

from tb_gpudiag.errors import Defect, GpudiagError, is_out_of_memory
from tb_gpudiag.service.guarded_memory import MemoryLimit
from tb_gpudiag.service.settings import settings_from
from tb_gpudiag.training.answers import Answer
from tb_gpudiag.training.diagnosing import diagnose_job, diagnose_recording


def serve(out: IO[bytes]) -> None:
    """Answer requests until stdin ends."""
    requests: SimpleQueue[dict[str, Any]] = SimpleQueue()

    def read() -> None:
        with contextlib.suppress(Exception):
            for line in sys.stdin.buffer:
                requests.put(json.loads(line))
        os._exit(0)

    threading.Thread(target=read, name="gpudiag-requests", daemon=True).start()
    named = os.environ.get("LOCAL_WORLD_SIZE", "")  # torchrun sets it
    ranks_here = max(1, int(named)) if named.isdecimal() else 1
    guard = MemoryLimit(settings_from().memory_limit_bytes // ranks_here)
    while True:
        try:
            _answer(requests.get(), guard).write(out)
        except OSError:  # the parent ended
            os._exit(0)


def _answer(request: dict[str, Any], guard: MemoryLimit) -> Answer:
    paths = request["paths"]
    try:
        with guard.watched():
            if request["kind"] == "job":
                return diagnose_job(paths)
            return diagnose_recording(
                paths[0],
                with_report=request["report"],
                with_record=request["record"],
                events=request["events"],
                step=request["step"],
            )
    except GpudiagError as error:
        return Answer(False, error.what)
    except Exception as error:  # a bug must not cost the user the other recordings
        if is_out_of_memory(error):
            return Answer(False, guard.error(paths[0]).what)
        return Answer(False, Defect.of(error, where=paths[0]).what)
