"""Find out why a PyTorch GPU job is slow or runs out of memory, from its traces and memory snapshots.

What `__all__` names is the public API, with `DiagnosisCallback` of `tb_gpudiag.training.lightning_callback`
and `.transformers_callback`. Everything else is private and may change in any version, whatever its name.
Importing it is cheap: it does not import numpy, pyarrow or protobuf until it is used.

In a notebook, the messages that the functions return show themselves as in `--format html`.
"""

from __future__ import annotations

from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from tb_gpudiag import errors
from tb_gpudiag.version import __version__

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from tb_gpudiag.pages.server import PageServer
    from tb_gpudiag.report.arrow.trace_tables import Tables
    from tb_gpudiag.report.report_pb2 import Comparison, HangReport, History, JobReport, Report
    from tb_gpudiag.training.diagnosis_handler import DiagnosisHandler
    from tb_gpudiag.training.noting_tensors import NotingTensors

__all__ = [
    "Comparison",
    "DiagnosisHandler",
    "HangReport",
    "History",
    "JobReport",
    "NotingTensors",
    "Report",
    "__version__",
    "compare",
    "diagnose",
    "errors",
    "hang",
    "history",
    "job",
    "open",
    "tables",
    "to_dict",
]


def __getattr__(name: str) -> Any:
    """Import a class when it is used."""
    if name == "DiagnosisHandler":
        from tb_gpudiag.training.diagnosis_handler import DiagnosisHandler

        return DiagnosisHandler
    if name == "NotingTensors":
        from tb_gpudiag.training.noting_tensors import NotingTensors

        return NotingTensors
    if name in ("Comparison", "HangReport", "History", "JobReport", "Report"):
        from tb_gpudiag.report import report_pb2

        return getattr(report_pb2, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


def diagnose(path: str | PathLike[str]) -> Report:
    """Diagnose one trace: a trace file, or a directory or fsspec URL with exactly one trace.

    Returns its Report. Times in it are in µs, sizes in bytes. Raises errors of
    `tb_gpudiag.errors`: NothingToRead if there is no trace, UsageError if there are several, a TraceError
    if the file cannot be read, and LimitReached if that takes too much time or memory.
    """
    from tb_gpudiag import notebook
    from tb_gpudiag.service.analyses.reports import report_at

    notebook.set_up()
    return report_at(fspath(path))


def compare(base: str | PathLike[str], candidate: str | PathLike[str], finding: str = "") -> Comparison:
    """Compare two traces or jobs. Each is a trace file, a digest file, or a directory or fsspec URL with one
    trace, or with one trace per rank of a job.

    finding: the id or name of a rule: `verified` of the result is then about its findings only.

    Returns their Comparison. Times in it are in µs per step, sizes in bytes. Raises errors of
    `tb_gpudiag.errors`: NothingToRead if there is nothing at a path, UsageError if there are several
    recordings or the base lacks the finding, and a TraceError if a file cannot be read.
    """
    from tb_gpudiag import notebook
    from tb_gpudiag.jobs.compare import comparison
    from tb_gpudiag.jobs.compare.promise import about_finding
    from tb_gpudiag.jobs.compare.side import one_side
    from tb_gpudiag.service.analyses.digests import digests_at

    notebook.set_up()
    sides = [one_side(digests_at(path), path) for path in (fspath(base), fspath(candidate))]
    found = comparison.compare(*sides)
    return about_finding(found, finding, fspath(base)) if finding else found


def job(path: str | PathLike[str]) -> JobReport:
    """Show the ranks of a job together: a directory or fsspec URL with a trace or a digest per rank.

    Returns the JobReport. Raises errors of `tb_gpudiag.errors`: NothingToRead if there are no
    two ranks of one job, UsageError if there are several jobs, and a TraceError if a file cannot be read.
    """
    from tb_gpudiag import notebook
    from tb_gpudiag.errors import NothingToRead, UsageError
    from tb_gpudiag.jobs.report.job_report import build_jobs
    from tb_gpudiag.service.analyses.digests import digests_at

    notebook.set_up()
    found = build_jobs(digests_at(fspath(path)))
    if not found.reports:
        why = "; ".join(found.notes)
        raise NothingToRead("no two ranks of one job were found", where=fspath(path), remedy=why)
    if len(found.reports) > 1:
        raise UsageError(
            f"contains {len(found.reports)} jobs, and a report is about one",
            where=fspath(path),
            remedy="name the directory of one job",
        )
    return found.reports[0]


def hang(path: str | PathLike[str]) -> HangReport:
    """Say which ranks hold up a job that hangs: a folder with a dump of each rank's flight recorder.

    Returns the HangReport. Raises errors of `tb_gpudiag.errors`: NothingToRead if there is no dump,
    UsageError if two are of one rank, a TraceError if a file cannot be read, and LimitReached.
    """
    from tb_gpudiag import notebook
    from tb_gpudiag.service.analyses.hangs import hang_at

    notebook.set_up()
    found, problems = hang_at([fspath(path)])
    if found is None or problems:
        raise problems[0]
    return found


def history(path: str | PathLike[str]) -> list[History]:
    """Show what changed over the recordings of runs: a directory or fsspec URL with traces or digests.

    Returns a History for each rank of each run. Raises errors of `tb_gpudiag.errors`:
    NothingToRead if there is no trace, and a TraceError if a file cannot be read.
    """
    from tb_gpudiag import notebook
    from tb_gpudiag.errors import NothingToRead
    from tb_gpudiag.jobs.history.run_history import histories
    from tb_gpudiag.service.analyses.digests import digests_at

    notebook.set_up()
    found = histories(digests_at(fspath(path)))
    if not found:
        raise NothingToRead("no trace and no digest of one was found", where=fspath(path))
    return found


def open(path: str | PathLike[str], port: int = 0) -> PageServer:
    """Serve the page for a log directory or a file, for this machine only, and open it in a browser.

    Returns the server, which is a context manager: `url` is its address, `tables` are the Arrow tables of
    what it shows (see `tables`), and `close()` or the end of the program stops it. port: 0 takes any free
    one. Raises UsageError if there is nothing at the path or the port is taken.
    """
    import webbrowser

    from tb_gpudiag.pages.server import PageServer

    server = PageServer(fspath(path), port=port)
    server.start()
    webbrowser.open(server.url)
    return server


def tables(path: str | PathLike[str]) -> Tables:
    """Return Arrow tables of a trace, or of all traces below a directory or an fsspec URL.

    `tables(path).gaps` and `tables(path)["gaps"]` are a `pyarrow.Table`: events, steps, launches, gaps, idle,
    kernels, copies, collectives, memory, findings and traces. `tables(path).sql("SELECT …")` runs DuckDB
    over them. Each table is made when it is first used. Times are in ns, sizes in bytes. Raises errors of
    `tb_gpudiag.errors`: NothingToRead if there is no trace, and a TraceError if no file can be read; files
    that cannot be read beside others are in `problems`.
    """
    from tb_gpudiag.report.arrow.trace_tables import tables_at

    return tables_at(fspath(path))


def to_dict(message: Message) -> dict[str, Any]:
    """Return a message, or a part of one, as plain data: what `--format json` prints of it.

    Where Python has the number of an enumeration, there is its word: `to_dict(report.verdict)["limiter"]` is
    "input", and `report.verdict.limiter` is `report.verdict.input`.
    """
    from tb_gpudiag.report import wire

    return wire.to_dict(message)
