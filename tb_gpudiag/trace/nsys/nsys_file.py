"""Files of Nsight Systems: how to tell them apart. nsys.py reads them, and imports much more."""

from __future__ import annotations

import os
import re
from typing import Final

from tb_gpudiag.errors import NotATrace

REPORT_SUFFIXES: Final = (".nsys-rep", ".qdrep", ".qdstrm")
"""Names of reports that only `nsys` itself can read."""

MAGIC: Final = b"SQLite format 3\x00"
"""How each SQLite file starts."""

EXPORT_HEAD_BYTES: Final = 64 << 10
"""The names of an export's tables are in its first pages."""

_TABLES: Final = re.compile(
    rb"CREATE TABLE \"?(CUPTI_ACTIVITY_KIND_|TARGET_INFO_|META_DATA_EXPORT|NVTX_EVENTS|ENUM_NSYS_|OSRT_API)"
)


def is_database(head: bytes) -> bool:
    """Return whether a file that starts like this is an SQLite database."""
    return head.startswith(MAGIC)


def is_export(head: bytes) -> bool:
    """Return whether a file that starts like this is an SQLite file of Nsight Systems."""
    return is_database(head) and _TABLES.search(head) is not None


def is_report(path: str) -> bool:
    """Return whether a report of Nsight Systems has such a name."""
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
        raise database_refused(path)


def database_refused(path: str) -> NotATrace:
    """Return the error for a database where a copy of a trace is wanted."""
    return NotATrace(
        "it is an SQLite export of Nsight Systems, and only traces of torch.profiler can be copied",
        where=path,
        remedy="look at the .nsys-rep file with Nsight Systems; gpudiag explain GD907 says how to "
        "remove credentials",
    )
