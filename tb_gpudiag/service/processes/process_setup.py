"""Processes that this package starts: their environment, their priority, and when they end.

Imports the standard library only: a child lowers its priority before it imports more.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import site
import sys
from collections.abc import Iterator
from pathlib import Path

import tb_gpudiag

# The training job may run on the same machine.
NICE = 10

# On a busy core, 1.5% of its time.
LOWEST = 19

# When memory runs out, Linux shall kill this process rather than TensorBoard or a training job.
OOM_SCORE_ADJUSTMENT = "500"

# Of our own processes. numpy starts a thread for each core when it is imported, but nothing here multiplies
# matrices. glibc gives each thread a heap of its own, so the diagnosis could not use what the threads that
# read the trace have freed: it took a tenth more memory.
ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
M_ARENA_MAX = -8

PR_SET_PDEATHSIG = 1
SIGKILL = 9


def worker_environment() -> dict[str, str]:
    """Return an environment where Python finds this package, and nothing in its working directory."""
    package_root = str(Path(tb_gpudiag.__file__).resolve().parent.parent)
    searched_anyway = {
        os.path.realpath(path) for path in (*site.getsitepackages(), site.getusersitepackages())
    }
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    paths = [os.path.abspath(path) for path in paths]
    # Only if needed: PYTHONPATH comes before the standard library.
    if package_root not in searched_anyway and package_root not in paths:
        paths.append(package_root)
    ours = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1", "PYTHONUTF8": "1"}
    return {**ENVIRONMENT, **os.environ, **ours}


def use_environment() -> None:
    """Set ENVIRONMENT for this process, which has not imported numpy, and those that it starts."""
    os.environ.update({**ENVIRONMENT, **os.environ})
    with contextlib.suppress(OSError, AttributeError, TypeError, ValueError):  # another C library or system
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, int(os.environ["MALLOC_ARENA_MAX"]))


@contextlib.contextmanager
def without_collecting() -> Iterator[None]:
    """Collect no garbage during large imports: there is none, and the search takes a tenth of their time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def die_with_parent(parent: int) -> None:
    """On Linux, ask for a signal when the thread ends that started this process."""
    if sys.platform == "linux":
        try:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
        except (OSError, AttributeError):  # a C library without it
            return
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)


def lower_priority(nice: int) -> None:
    """Take less of the processors than other programs, and be the first to go when memory runs out.

    nice: 0 to change nothing, up to LOWEST.
    """
    if not nice:
        return
    with contextlib.suppress(OSError, AttributeError):  # not on this system, or not allowed here
        os.nice(nice)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(OOM_SCORE_ADJUSTMENT)
        if nice == LOWEST:  # in a session of its own, Linux may schedule it as an equal
            with contextlib.suppress(OSError):
                Path("/proc/self/autogroup").write_text(str(nice))
