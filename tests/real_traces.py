"""Real traces, recorded by others. They are not part of the project; tests skip without them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.build import build_report
from tb_gpudiag.trace.files.find import TraceFile, find_traces
from tb_gpudiag.trace.read import read_trace
from tests.conftest import SHARED_TRACES

FILES = sorted(path.relative_to(SHARED_TRACES).as_posix() for path in SHARED_TRACES.rglob("*.json*"))
"""All of them, as paths below the folder of real traces."""

SMALL_FILES = [path for path in FILES if (SHARED_TRACES / path).stat().st_size <= 200_000]
"""Some of each recorder, for what takes long: the large ones have more of the same events."""


def real_facts(path: Path | str) -> Facts:
    """Facts of a real trace: an absolute path, or one below the folder of real traces.

    Tests on one trace run in a row (see conftest.py) and share its facts: each trace is read once.
    """
    return _facts(str(SHARED_TRACES / path))


def real_report(path: Path | str) -> pb.Report:
    """Report of a real trace, made once for all tests on it. Do not change it."""
    return _report(str(SHARED_TRACES / path))


def first_in(folder: str) -> Facts:
    """Facts of the first real trace in a folder."""
    return real_facts(min((SHARED_TRACES / folder).rglob("*.json*")))


# As many as the ranks of the largest real job.
@lru_cache(maxsize=8)
def _facts(path: str) -> Facts:
    return Facts(read_trace(path))


@lru_cache(maxsize=8)
def _report(path: str) -> pb.Report:
    return build_report(_facts(path), file_at(path))


def file_at(path: str) -> TraceFile:
    """What is known of a file in the folder of its run."""
    (found,) = (file for file in find_traces(str(Path(path).parent)).files if file.path == path)
    return found
