"""Tells why a GPU training job is slow or runs out of memory, from what PyTorch recorded.

The public API; importing it costs nothing until it is used (neither numpy nor duckdb is imported).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tb_gpudiag.version import __version__

if TYPE_CHECKING:
    from tb_gpudiag.report.report_pb2 import Report

__all__ = ["__version__", "diagnose"]


def diagnose(path: str) -> Report:
    """Diagnoses one trace: a trace file, or a directory (or fsspec URL) that holds exactly one.

    Returns the Report of report.proto. Raises the errors of `tb_gpudiag.errors`: NothingToRead where there is
    no trace, UsageError where there are several, and the TraceError family where the file cannot be read.
    """
    from tb_gpudiag.report.diagnosis import diagnose_path

    return diagnose_path(path)
