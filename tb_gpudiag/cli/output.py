"""What commands write to standard error: one line for each error, and nothing that moves the cursor."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Iterable
from typing import Final

from tb_gpudiag.errors import Defect, GpudiagError
from tb_gpudiag.version import __version__
from tb_gpudiag.wording.format import one_line

UNUSABLE: Final = 2
"""Exit status after invalid usage, and if there is nothing to read."""
DEFECT: Final = 3
"""Exit status after a bug in gpudiag."""

# Paths have up to 4,096 characters.
_LONGEST_LINE: Final = 6_000


def have_output() -> None:
    """Write to nowhere where the caller has closed an output, and "?" for characters that it cannot show."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  (until the process ends)
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def tell(text: str) -> None:
    """Write a line to standard error. The text may contain names from a trace or a directory."""
    print(f"gpudiag: {one_line(text, _LONGEST_LINE)}", file=sys.stderr)


def tell_errors(errors: Iterable[GpudiagError]) -> bool:
    """Write a line for each error. Return whether one of them is a bug in gpudiag."""
    found = list(errors)
    for error in found:
        tell(str(error))
    return any(isinstance(error, Defect) for error in found)


def errors_data(errors: Iterable[GpudiagError]) -> list[dict[str, str]]:
    """Return the errors as JSON shows them."""
    return [{"what": error.what, "where": error.where, "remedy": error.remedy} for error in errors]


def report_bug(error: Exception, where: str = "") -> Defect:
    remedy = f"please report this bug in version {__version__}, with the file if you can share it"
    return Defect.of(error, where=where, remedy=remedy)


class LineFormatter(logging.Formatter):
    """Formats a log record as one line, without its traceback, which may quote the trace."""

    def format(self, record: logging.LogRecord) -> str:
        return f"gpudiag: {one_line(record.getMessage(), _LONGEST_LINE)}"
