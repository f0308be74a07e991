"""Analyses in threads of the tests' process, for tests on results and not on processes.

An analysis process spends half a second of computing on imports. test_jobs.py, test_worker.py, test_slices.py
and tests/test_plugin_process.py test such processes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import pytest

from tb_gpudiag.errors import GpudiagError
from tb_gpudiag.service.analyses import analysis_queue, worker
from tb_gpudiag.service.analyses.protocol import Done, Failed, Task
from tests.service import fake_worker
from tests.service.helpers import FAKE_WORKER

ANALYSES = {analysis_queue.COMMAND: worker.analyze, FAKE_WORKER: fake_worker.analyze}


class Analysis:
    """What `jobs` needs of `subprocess.Popen`, for an analysis in a thread. It cannot be killed: it ends."""

    def __init__(self, command: Sequence[str], **_: object) -> None:
        self._analyze = ANALYSES[tuple(command)]
        questions, to_it = os.pipe()
        from_it, answers = os.pipe()
        self.stdin, self.stdout = os.fdopen(to_it, "wb"), os.fdopen(from_it, "rb")
        self.stderr = os.fdopen(os.open(os.devnull, os.O_RDONLY), "rb")
        self._thread = threading.Thread(target=self._run, args=(questions, answers), daemon=True)
        self._thread.start()

    def kill(self) -> None:
        """Let it end by itself."""

    def wait(self) -> int:
        self._thread.join()
        return 0

    def _run(self, questions: int, answers: int) -> None:
        with open(questions, "rb") as lines, open(answers, "wb") as out:
            line = lines.readline()
            if line:
                task = Task.from_line(line)
                reporter = worker.Reporter(out)
                try:
                    reporter.say(Done(str(self._analyze(task, reporter.progress))))
                except GpudiagError as error:
                    reporter.say(Failed(error))


@contextlib.contextmanager
def analyses_in_process() -> Iterator[None]:
    """Start threads and not processes within this block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(analysis_queue, "subprocess", SimpleNamespace(Popen=Analysis, PIPE=subprocess.PIPE))
        yield


if __name__ == "__main__":
    # `python -m tests.service.in_process ARGUMENTS` is `gpudiag ARGUMENTS` with analyses in threads.
    from tb_gpudiag.cli.main import main

    with analyses_in_process():
        sys.exit(main(sys.argv[1:]))
