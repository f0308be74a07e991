"""The environment and the priority of processes that this package starts, and when they end.

This module imports only the standard library: a child lowers its priority before it imports more.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import site
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tb_gpudiag

# A training job may run on the same machine.
NICE = 10

# When memory runs out, Linux kills our processes rather than TensorBoard or a training job.
OOM_SCORE_ADJUSTMENT = "500"

# When numpy is imported, it starts a thread for each core, but nothing here multiplies matrices. glibc gives
# each thread its own heap: the diagnosis took a tenth more memory, because it could not reuse the memory of
# the threads that had read the trace.
ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
M_ARENA_MAX = -8

PR_SET_PDEATHSIG = 1
SIGKILL = 9


def worker_environment() -> dict[str, str]:
    """Return an environment in which Python finds this package, but nothing in its working directory."""
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
    """Set ENVIRONMENT for this process, before it imports numpy, and for the processes that it starts."""
    os.environ.update({**ENVIRONMENT, **os.environ})
    with contextlib.suppress(OSError, AttributeError, TypeError, ValueError):  # another C library or system
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, int(os.environ["MALLOC_ARENA_MAX"]))


class _NoPandas:
    """Finds no pandas, and leaves all other modules to others."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def do_without_pandas() -> None:
    """Keep Arrow from importing pandas in this process, which must be one of this package alone.

    Arrow does so when it makes an array, or gives one to NumPy, in case that it is one of pandas'. Where
    pandas is installed, importing it takes longer than everything else in a short command.
    """
    if _NoPandas not in sys.meta_path:
        sys.meta_path.insert(0, _NoPandas)


@contextlib.contextmanager
def without_collecting() -> Iterator[None]:
    """Collect no garbage during large imports: there is none, and the search takes a tenth of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextlib.contextmanager
def ended_by_interrupts(is_own_process: bool) -> Iterator[None]:
    """Have Ctrl-C end this process at once: a library that it interrupts while it is imported says that it is
    broken. A process that takes no notice of Ctrl-C still does not."""
    usual = signal.getsignal(signal.SIGINT)
    if not is_own_process or usual is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


def handle_requests_to_end(before: object, after: Any) -> None:
    """Handle Ctrl-C, a service manager's SIGTERM and a closed terminal's SIGHUP in another way than before.

    default_int_handler lets a command remove what it has not finished, SIG_DFL ends it at once.
    """
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows lacks some
        if number is not None and signal.getsignal(number) is before:  # `nohup` has one ignored
            signal.signal(number, after)


def die_with_parent(parent: int) -> None:
    """On Linux, have this process killed when the thread that started it ends."""
    if sys.platform == "linux":
        try:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
        except (OSError, AttributeError):  # a C library without it
            return
        if os.getppid() != parent:  # the parent died before the line above
            os._exit(1)


def lower_priority(nice: int) -> None:
    """Be the first to be killed when memory runs out, and take less processor time than other programs.

    nice: how much less; 0 for as much as others.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # not allowed here
            Path("/proc/self/oom_score_adj").write_text(OOM_SCORE_ADJUSTMENT)
    if not nice:
        return
    with contextlib.suppress(OSError, AttributeError):  # not on this system, or not allowed here
        os.nice(nice)
    if sys.platform == "linux":
        # Linux may schedule a session of its own as the equal of all others.
        with contextlib.suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(nice))
