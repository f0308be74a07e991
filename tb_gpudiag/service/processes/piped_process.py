"""Processes of this package that are asked through one pipe and answer through another."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from tb_gpudiag.service.processes.child_process import worker_environment


def start(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a process. Its pipes are not buffered. Raises OSError."""
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,  # it ends when we do, and then the process exits
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        env=worker_environment(),
        cwd=os.path.abspath(os.sep),
        start_new_session=True,  # Ctrl-C in the terminal is for TensorBoard only
    )


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and close its pipes."""
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
