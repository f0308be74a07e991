"""An analysis process that does what its "trace" says, with the limits of the real one.

The text of the "trace" says what to do. Texts without a branch in `analyze` succeed. Each start adds a line
to the file GPUDIAG_TEST_STARTS.
"""

from __future__ import annotations

import gzip
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tb_gpudiag.errors import NoAnswer, NotATrace
from tb_gpudiag.service.analyses import worker
from tb_gpudiag.service.analyses.protocol import Task
from tb_gpudiag.service.analyses.worker import save
from tb_gpudiag.service.processes import memory_limit


def analyze(task: Task, progress: Callable[[float, str], None]) -> Path:
    note_start(Path(task.file.path).name)
    text = Path(task.file.path).read_text(encoding="utf-8")
    progress(0.5, "working")
    word = text.strip()
    kept: list[object] = []
    if word == "hang":
        time.sleep(600)
    elif word == "stuck":  # in C, with the GIL held: no other thread runs
        sum(range(1 << 60))
    elif word == "crash":  # while it saves the result
        Path(task.drafts[0]).write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGSEGV)
    elif word == "eat":
        import numpy as np  # costs as much as all the rest

        while True:
            kept.append(np.ones(1 << 20))
            time.sleep(0.001)
    elif word == "gulp":
        kept.append(bytearray(1 << 40))
    elif word == "refuse":
        raise NotATrace("no trace", where=task.file.path, remedy="give another")
    elif word == "silent":
        raise NoAnswer("the store does not answer", where=task.file.path, remedy="check the connection")
    elif word == "stalled":
        from tb_gpudiag.trace.files.source import WAITING_FOR_STORE

        progress(0.5, WAITING_FOR_STORE)
        time.sleep(600)
    elif word == "patient":
        from tb_gpudiag.service.caches.claims import WAITING

        for _ in range(90):
            progress(0.0, WAITING)
            time.sleep(0.1)
    elif word == "defect":
        raise KeyError("terces"[::-1])
    elif word == "chatter":
        print("no message, and without an end", end="", flush=True)
        sys.stderr.write("x" * 1_000_000)
    import numpy as np

    report = f'{{"state":"ready","progress":1.0,"report":{{"text":"{word}"}}}}'
    summary = {"sentence": word}
    if word.startswith("saves "):
        summary["row"] = f'{{"saving_share":{word.removeprefix("saves ")}}}'
    return save(task, gzip.compress(report.encode()), {"x": np.arange(1000)}, summary)


def note_start(name: str) -> None:
    starts = os.environ.get("GPUDIAG_TEST_STARTS")
    if starts:
        with open(starts, "a", encoding="utf-8") as file:
            file.write(f"{os.getpid()} {name}\n")


if __name__ == "__main__":
    # So far above the limit that only the memory watch stops `eat`.
    memory_limit.REFUSED_AT = 1000
    worker.main(analyze)
