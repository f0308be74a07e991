"""The training process's side of the helper: start it, ask it, end it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from typing import Any, Final

from tb_gpudiag.service.processes.child_process import worker_environment
from tb_gpudiag.training.answers import Answer

COMMAND = (sys.executable, "-m", "tb_gpudiag.training.helper")

# Libraries lose a little memory with each file.
RENEW_AFTER: Final = 200

# After its output has ended.
ENDS_WITHIN_S: Final = 2.0


class HelperProcess:
    """One process at a time, started when it is needed. `ask` and `stop` belong to one thread.

    Linux ends the process when that thread ends. name: what it serves, as in serving.py.
    """

    def __init__(self, name: str = "") -> None:
        self._arguments = [name] if name else []
        self._process: subprocess.Popen[bytes] | None = None
        self._asked = 0
        self._late = False

    @property
    def pid(self) -> int | None:
        """Process id; None if no process runs."""
        process = self._process
        return process.pid if process is not None else None

    def ask(self, request: dict[str, Any], time_limit_s: float) -> Answer:
        """Send a request and wait for the answer. Raises nothing: a process that fails is an answer, too."""
        if self._asked >= RENEW_AFTER:
            self.stop()
        try:
            process = self._process = self._process or self._start()
        except OSError as error:
            return Answer(False, f"no helper process could be started: {error.strerror or error}")
        self._asked += 1
        self._late = False
        timer = threading.Timer(time_limit_s, self._stop_late, [process])
        timer.daemon = True
        timer.start()
        answer = None
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(request).encode("ascii") + b"\n")
            process.stdin.flush()
            answer = Answer.read(process.stdout)
        except OSError:  # it ended before it read the request
            pass
        finally:
            timer.cancel()
        if answer is not None:
            return answer
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ENDS_WITHIN_S)  # before stop() kills it: why it ended is in its exit status
        self.stop()
        why = f"took over {time_limit_s:g} s" if self._late else f"ended ({_exit_text(process.returncode)})"
        return Answer(False, f"the helper process {why}")

    def kill(self) -> None:
        """End the process at once, from any thread."""
        process = self._process
        if process is not None:
            process.kill()

    def stop(self) -> None:
        """End the process."""
        process, self._process, self._asked = self._process, None, 0
        if process is None:
            return
        # Its stdin may not end: processes that were forked meanwhile have it open, too.
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            try:
                stream.close()  # type: ignore[union-attr]
            except OSError:  # the pipe still has text that it did not read
                pass

    def forget(self) -> None:
        """After a fork: the process belongs to the parent."""
        self._process, self._asked = None, 0

    def _stop_late(self, process: subprocess.Popen[bytes]) -> None:
        self._late = True
        process.kill()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*COMMAND, str(os.getpid()), *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=worker_environment(),
            cwd=os.path.abspath(os.sep),  # it is on Python's path, and must not contain a random.py
            start_new_session=True,  # Ctrl-C in the terminal is for the training only
        )


def _exit_text(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
