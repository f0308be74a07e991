"""An analysis process that does what its "trace" says, with the limits of the real one.

The text of the "trace" says what to do. Texts without a branch in `act` succeed. Each start adds a line
to the file GPUDIAG_TEST_STARTS.
"""

from __future__ import annotations

import gzip
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tb_gpudiag.errors import NoAnswer, NotATrace
from tb_gpudiag.service.analyses.task import EntryContent, Task, save
from tb_gpudiag.service.processes import memory_limit
from tb_gpudiag.service.processes.child import ChildMessage
from tb_gpudiag.service.processes.serving import Reply


def answer(request: dict[str, Any], reply: Reply) -> ChildMessage:
    task = Task.of(request)
    # So far above the limit that only the memory watch stops `eat`.
    memory_limit.REFUSED_AT = 1000
    reply.bound_memory(task.memory_limit_bytes)
    note_start(Path(task.file.path).name)
    word = Path(task.file.path).read_text(encoding="utf-8").strip()
    reply.progress(0.5, "working")
    if word == "early":  # the report is known, and the rest takes longer
        reply.piece(gzip.compress(b'{"state":"running","report":{"text":"early"}}'))
    act(word, task, reply)
    import numpy as np

    report = f'{{"state":"ready","progress":1.0,"report":{{"text":"{word}"}}}}'
    summary = {"sentence": word}
    if word.startswith("saves "):
        summary["row"] = f'{{"low_saving_share":{word.removeprefix("saves ")}}}'
    result = EntryContent(gzip.compress(report.encode()), {"x": np.arange(1000)}, summary)
    return ChildMessage({"draft": str(save(result, task.drafts))})


left: list[object] = []
"""What earlier files have left in this process."""


def act(word: str, task: Task, reply: Reply) -> None:
    kept: list[object] = []
    if word == "spoiled" and left:
        os.kill(os.getpid(), signal.SIGSEGV)
    left.append(b"x" * (200 << 20) if word == "large" else word)
    if word in ("hang", "early"):
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

        reply.progress(0.5, WAITING_FOR_STORE)
        time.sleep(600)
    elif word == "patient":
        from tb_gpudiag.service.caches.claims import WAITING

        for _ in range(90):
            reply.progress(0.0, WAITING)
            time.sleep(0.1)
    elif word == "defect":
        raise KeyError("terces"[::-1])
    elif word == "chatter":
        print("no message, and without an end", end="", flush=True)
        sys.stderr.write("x" * 1_000_000)


def note_start(name: str) -> None:
    starts = os.environ.get("GPUDIAG_TEST_STARTS")
    if starts:
        with open(starts, "a", encoding="utf-8") as file:
            file.write(f"{os.getpid()} {name}\n")
