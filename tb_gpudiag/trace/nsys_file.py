"""Files of Nsight Systems: which one a path is, and how to read it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Final

from tb_gpudiag.errors import NotATrace
from tb_gpudiag.trace.events import Trace
from tb_gpudiag.trace.limits import Limits
from tb_gpudiag.trace.nsys import read_nsys
from tb_gpudiag.trace.nsys_database import MAGIC
from tb_gpudiag.trace.source import Source, is_remote

REPORT_SUFFIXES: Final = (".nsys-rep", ".qdrep", ".qdstrm")
"""Names of reports that only `nsys` itself can read."""


def is_database(head: bytes) -> bool:
    """Return whether a file that starts like this is an SQLite database."""
    return head.startswith(MAGIC)


def is_report(path: str) -> bool:
    """Return whether the name is that of a report of Nsight Systems."""
    return path.endswith(REPORT_SUFFIXES)


def exported_path(path: str) -> str:
    """Return where `nsys export` puts what it makes of a report."""
    return f"{os.path.splitext(path)[0]}.sqlite"


def report_refused(path: str) -> NotATrace:
    """Return the error that says how to export a report."""
    return NotATrace(
        "it is a report of Nsight Systems, which only nsys can read",
        where=path,
        remedy=f"export it: nsys export --type sqlite {path}, then name the .sqlite file; "
        "gpudiag diagnose --export does both where nsys is installed",
    )


def refuse_database(first: bytes, path: str) -> None:
    """Raise NotATrace for a database: only JSON can be copied event by event."""
    if is_database(first):
        raise NotATrace(
            "it is an SQLite export of Nsight Systems, and only traces of torch.profiler can be copied",
            where=path,
            remedy="look at the .nsys-rep file with Nsight Systems; gpudiag explain GD907 says how to "
            "remove credentials",
        )


def read_export(
    source: Source, blocks: Iterator[bytes], limits: Limits, report: Callable[[float, str], None]
) -> Trace:
    """Read an export. SQLite needs a file: what is remote or packed is copied to a temporary one."""
    if not is_remote(source.path) and not source.is_packed:
        source.check_path()  # SQLite opens it again
        trace = read_nsys(source.path, limits, report)
        source.check_path()
        return trace
    with tempfile.NamedTemporaryFile(prefix="gpudiag-", suffix=".sqlite") as copy:
        for block in blocks:
            copy.write(block)
        copy.flush()
        return read_nsys(copy.name, limits, report, source.path)
