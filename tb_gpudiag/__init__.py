"""Find out why a PyTorch GPU job is slow or runs out of memory, from its traces and memory snapshots.

This is the public API, with `tb_gpudiag.errors`, the messages of report.proto, and `DiagnosisCallback` of
`tb_gpudiag.training.lightning_callback` and `.transformers_callback`. Everything else may change in any
version. Importing it is cheap: it does not import numpy or pyarrow until it is used.

In a notebook, the messages that the functions return show themselves as in `--format html`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tb_gpudiag.version import __version__

if TYPE_CHECKING:
    from tb_gpudiag.pages.server import PageServer
    from tb_gpudiag.report.report_pb2 import Comparison, History, JobReport, Report
    from tb_gpudiag.training.diagnosis_handler import DiagnosisHandler

__all__ = ["DiagnosisHandler", "__version__", "compare", "diagnose", "history", "job", "open"]


def __getattr__(name: str) -> Any:
    """Import DiagnosisHandler when it is used."""
    if name == "DiagnosisHandler":
        from tb_gpudiag.training.diagnosis_handler import DiagnosisHandler

        return DiagnosisHandler
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def diagnose(path: str) -> Report:
    """Diagnose one trace: a trace file, or a directory or fsspec URL with exactly one trace.

    Returns the Report of report.proto. Times in it are in µs, sizes in bytes. Raises errors of
    `tb_gpudiag.errors`: NothingToRead if there is no trace, UsageError if there are several, and a TraceError
    if the file cannot be read.
    """
    from tb_gpudiag import notebook
    from tb_gpudiag.report.diagnosis import diagnose_path

    notebook.set_up()
    return diagnose_path(path)


def compare(base: str, candidate: str) -> Comparison:
    """Compare two traces or jobs. Each is a trace file, a digest file, or a directory or fsspec URL with one
    trace, or with one trace per rank of a job.

    Returns the Comparison of report.proto. Times in it are in µs per step, sizes in bytes. Raises errors of
    `tb_gpudiag.errors`: NothingToRead if there is nothing at a path, UsageError if there are several
    recordings, and a TraceError if a file cannot be read.
    """
    from tb_gpudiag import notebook
    from tb_gpudiag.digest.digested import digests_at
    from tb_gpudiag.jobs.compare import comparison
    from tb_gpudiag.jobs.compare.side import one_side

    notebook.set_up()
    sides = [one_side(digests_at(path), path) for path in (base, candidate)]
    return comparison.compare(*sides)


def job(path: str) -> JobReport:
    """Show the ranks of a job together: a directory or fsspec URL with a trace or a digest per rank.

    Returns the JobReport of report.proto. Raises errors of `tb_gpudiag.errors`: NothingToRead if there are no
    two ranks of one job, UsageError if there are several jobs, and a TraceError if a file cannot be read.
    """
    from tb_gpudiag import notebook
    from tb_gpudiag.digest.digested import digests_at
    from tb_gpudiag.errors import NothingToRead, UsageError
    from tb_gpudiag.jobs.report.job_report import build_jobs

    notebook.set_up()
    found = build_jobs(digests_at(path))
    if not found.reports:
        why = "; ".join(found.notes)
        raise NothingToRead("no two ranks of one job were found", where=path, remedy=why)
    if len(found.reports) > 1:
        raise UsageError(
            f"contains {len(found.reports)} jobs, and a report is about one",
            where=path,
            remedy="name the directory of one job",
        )
    return found.reports[0]


def history(path: str) -> list[History]:
    """Show what changed over the recordings of runs: a directory or fsspec URL with traces or digests.

    Returns a History of report.proto for each rank of each run. Raises errors of `tb_gpudiag.errors`:
    NothingToRead if there is no trace, and a TraceError if a file cannot be read.
    """
    from tb_gpudiag import notebook
    from tb_gpudiag.digest.digested import digests_at
    from tb_gpudiag.errors import NothingToRead
    from tb_gpudiag.jobs.history.run_history import histories

    notebook.set_up()
    found = histories(digests_at(path))
    if not found:
        raise NothingToRead("no trace and no digest of one was found", where=path)
    return found


def open(path: str, port: int = 0) -> PageServer:
    """Serve the page for a log directory or a file, for this machine only, and open it in a browser.

    Returns the server, which is a context manager: `url` is its address, and `close()` or the end of the
    program stops it. port: 0 takes any free one. Raises UsageError if there is nothing at the path or the
    port is taken.
    """
    import webbrowser

    from tb_gpudiag.pages.server import PageServer

    server = PageServer(path, port=port)
    server.start()
    webbrowser.open(server.url)
    return server
