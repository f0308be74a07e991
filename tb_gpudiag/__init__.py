"""Find out why a PyTorch GPU job is slow or runs out of memory, from its traces and memory snapshots.

This is the public API. Importing it is cheap: it does not import numpy or pyarrow until it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tb_gpudiag.version import __version__

if TYPE_CHECKING:
    from tb_gpudiag.report.report_pb2 import Comparison, Report
    from tb_gpudiag.training.diagnosis_handler import DiagnosisHandler

__all__ = ["DiagnosisHandler", "__version__", "compare", "diagnose"]


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
    from tb_gpudiag.report.diagnosis import diagnose_path

    return diagnose_path(path)


def compare(base: str, candidate: str) -> Comparison:
    """Compare two traces or jobs. Each is a trace file, a digest file, or a directory or fsspec URL with one
    trace, or with one trace per rank of a job.

    Returns the Comparison of report.proto. Times in it are in µs per step, sizes in bytes. Raises errors of
    `tb_gpudiag.errors`: NothingToRead if there is nothing at a path, UsageError if there are several
    recordings, and a TraceError if a file cannot be read.
    """
    from tb_gpudiag.digest.digested import digests_at
    from tb_gpudiag.jobs.compare import comparison
    from tb_gpudiag.jobs.compare.side import one_side

    sides = [one_side(digests_at(path), path) for path in (base, candidate)]
    return comparison.compare(*sides)
