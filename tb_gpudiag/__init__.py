"""Find out why a PyTorch GPU job is slow or runs out of memory, from its traces and memory snapshots.

This is the public API. Importing it is cheap: it does not import numpy or duckdb until it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tb_gpudiag.version import __version__

if TYPE_CHECKING:
    from tb_gpudiag.report.report_pb2 import Report

__all__ = ["__version__", "diagnose"]


def diagnose(path: str) -> Report:
    """Diagnose one trace: a trace file, or a directory or fsspec URL with exactly one trace.

    Returns the Report of report.proto. Times in it are in µs, sizes in bytes. Raises errors of
    `tb_gpudiag.errors`: NothingToRead if there is no trace, UsageError if there are several, and a TraceError
    if the file cannot be read.
    """
    from tb_gpudiag.report.diagnosis import diagnose_path

    return diagnose_path(path)
