"""Measure how long the ranks of a job take, and how much memory: digests of large traces in two processes,
compared with single diagnoses in the same run, and the reduction of ten thousand digests.

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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tb_gpudiag.digest.digest_files import SUFFIX, to_bytes
from tests.benchmarks.traces import Measured, large_trace, measured
from tests.benchmarks.truth.jobs import digests
from tests.simulator.jobs import DistributedJob, JobFault
from tests.simulator.jobs.run import simulate_job

RANKS = 8
SIZE_BYTES = 100 << 20
REDUCED = 10_000

# Of the sum of single diagnoses, divided by the number of processes.
MOST_TIMES = 1.1
MOST_BYTES = 2 << 30
MOST_REDUCE_S = 30.0
MOST_REDUCE_BYTES = 3 << 30

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


_REDUCE = """
from tb_gpudiag.digest.digest_files import read_digest
from tb_gpudiag.digest.digest_files import find_digests
from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.ranks.members import find_sets, slim
from tb_gpudiag.jobs.report.job_report import build_job_report
# measured
(found,) = find_sets([slim(read_digest(name)) for name in find_digests(path)]).sets
result = len(build_job_report(JobFacts(found)).ranks)
"""


def reduced(folder: Path, ranks: int = REDUCED) -> Measured:
    """Reduce the digests of this many ranks to a job's report. The result is the number of its ranks."""
    run = simulate_job(DistributedJob("ddp", ranks=8, layers=12, fault=JobFault("slow_gpu", (3,), 1.3)))
    run.write(folder / "traces")
    eight = list(digests(folder / "traces"))
    everyone = list(range(ranks))
    files = folder / "digests"
    files.mkdir()
    for rank in everyone:
        digest = eight[rank % 8]
        groups: dict[str, Sequence[int]] = dict.fromkeys(digest.about.groups, everyone)
        about = replace(
            digest.about,
            id=f"{rank:032x}",
            rank=rank,
            world_size=ranks,
            groups=groups,
            worker=f"node{rank // 8}_{rank}",
            host=f"node{rank // 8}",
        )
        (files / f"{rank}{SUFFIX}").write_bytes(to_bytes(replace(digest, about=about)))
    return measured(_REDUCE, files)


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
    ranks, megabytes, count = [*given, *(RANKS, SIZE_BYTES >> 20, REDUCED)[len(given) :]]
    with tempfile.TemporaryDirectory() as folder:
        print(show(mapped(Path(folder), ranks, megabytes << 20)))
    with tempfile.TemporaryDirectory() as folder:
        print(show_reduced(reduced(Path(folder), count)))


def show(found: Mapped) -> str:
    """Return the figures as lines."""
    return (
        f"{found.ranks} ranks in two processes: {found.seconds:.1f} s; a single one takes "
        f"{found.single_seconds:.2f} s: {found.times:.2f} times as long as singles on two cores "
        f"(aim: {MOST_TIMES})\npeak memory of all processes: {found.peak_bytes / 2**30:.2f} GiB "
        f"(aim: {MOST_BYTES / 2**30:.0f})"
    )


def show_reduced(found: Measured) -> str:
    """Return the figures as a line."""
    return (
        f"{found.result:,} digests reduced in {found.seconds:.1f} s (aim: {MOST_REDUCE_S:.0f}), "
        f"{found.peak_bytes / 2**30:.2f} GiB (aim: {MOST_REDUCE_BYTES / 2**30:.0f})"
    )


if __name__ == "__main__":
    main()
