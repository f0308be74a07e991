"""Measure how long the ranks of a job take, and how much memory: digests of large traces in two processes,
compared with single diagnoses in the same run, and the reduction of a thousand digests.

    python -m tests.benchmarks.ranks [RANKS] [MEGABYTES] [REDUCED]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.traces import large_trace, measured

RANKS = 8
SIZE_BYTES = 100 << 20
REDUCED = 1000

# Of the sum of single diagnoses, divided by the number of processes.
MOST_TIMES = 1.1
MOST_BYTES = 2 << 30
MOST_REDUCE_S = 10.0

_SINGLE = """
from tb_gpudiag import diagnose
# measured
result = diagnose(path).trace.events
"""
_SINGLES = 3
_SAMPLE_S = 0.05


@dataclass(frozen=True)
class Mapped:
    """The digests of some ranks."""

    ranks: int
    seconds: float
    single_seconds: float  # mean of single diagnoses
    peak_bytes: int  # of all processes together

    @property
    def times(self) -> float:
        """How many times as long as single diagnoses on two processes."""
        return self.seconds / (self.single_seconds * self.ranks / 2)


def mapped(folder: Path, ranks: int, size_bytes: int) -> Mapped:
    """Digest `ranks` traces of this size in two processes."""
    trace = large_trace(folder, size_bytes)
    singles = [measured(_SINGLE, trace).seconds for _ in range(_SINGLES)]
    logs = folder / "job"
    logs.mkdir()
    for rank in range(ranks):
        shutil.copyfile(trace, logs / f"rank{rank}.1.pt.trace.json")
    began = time.perf_counter()
    command = [sys.executable, "-m", "tb_gpudiag", "digest", str(logs), "-o", str(folder / "digests")]
    process = subprocess.Popen([*command, "--processes", "2"], start_new_session=True)
    peak = _peak_bytes(process)
    seconds = time.perf_counter() - began
    if process.returncode or len(list((folder / "digests").iterdir())) != ranks:
        raise RuntimeError("the ranks were not digested")
    return Mapped(ranks, seconds, sum(singles) / len(singles), peak)


def _peak_bytes(process: subprocess.Popen[bytes]) -> int:
    """Wait for the process, and return the most memory that its session had at once."""
    peak = 0
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(_SAMPLE_S):
            peak = max(peak, _session_bytes(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    process.wait()
    done.set()
    watcher.join()
    return peak


def _session_bytes(session: int) -> int:
    """Return the memory of the processes of a session, without what they share with files."""
    total = 0
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            if os.getsid(int(folder.name)) == session:
                _, resident, shared, *_ = (folder / "statm").read_text().split()
                total += (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError):  # it has just ended
            continue
    return total


def main() -> None:
    """Print the table."""
    given = [int(word) for word in sys.argv[1:]]
    ranks, megabytes, *_ = [*given, *(RANKS, SIZE_BYTES >> 20, REDUCED)[len(given) :]]
    with tempfile.TemporaryDirectory() as folder:
        print(show(mapped(Path(folder), ranks, megabytes << 20)))


def show(found: Mapped) -> str:
    """Return the figures as lines."""
    return (
        f"{found.ranks} ranks in two processes: {found.seconds:.1f} s; a single one takes "
        f"{found.single_seconds:.2f} s: {found.times:.2f} times as long as singles on two cores "
        f"(aim: {MOST_TIMES})\npeak memory of all processes: {found.peak_bytes / 2**30:.2f} GiB "
        f"(aim: {MOST_BYTES / 2**30:.0f})"
    )


if __name__ == "__main__":
    main()
