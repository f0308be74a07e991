"""Files of other recorders than torch.profiler's JSON: how to tell them by their names and first bytes. Their
readers import much more."""

from __future__ import annotations

import os
import re
from typing import Final

from tb_gpudiag.errors import NotATrace
from tb_gpudiag.vocabulary.patterns import lazy_re

REPORT_SUFFIXES: Final = (".nsys-rep", ".qdrep", ".qdstrm")
"""Names of reports that only `nsys` itself can read."""

MAGIC: Final = b"SQLite format 3\x00"
"""How each SQLite file starts."""

EXPORT_HEAD_BYTES: Final = 64 << 10
"""The names of an export's tables are in its first pages."""

_TABLES: Final = lazy_re(
    rb"CREATE TABLE \"?(CUPTI_ACTIVITY_KIND_|TARGET_INFO_|META_DATA_EXPORT|NVTX_EVENTS|ENUM_NSYS_|OSRT_API)"
)

_TIMELINE: Final = lazy_re(rb"\s*\[\s*\[\s*[-0-9\]]")

_ROCPROF: Final = lazy_re(rb'\s*\{\s*"rocprofiler-sdk-tool"\s*:\s*\[')

# Each packet of Perfetto's binary traces: the tag of field 1, and a length of up to five bytes.
_PACKET: Final = lazy_re(rb"\n([\x80-\xff]{0,4}[\x00-\x7f])", re.DOTALL)
_PACKETS_SEEN: Final = 3
_BINARY: Final = lazy_re(rb"[\x00-\x08\x0e-\x1f]")  # not in text
_OPENINGS: Final = (b"{", b"[", b"<")

_OPENS_DICT: Final = rb"\}(?:\x94|q.)?\("
_TEXT_FOLLOWS: Final = rb"(?:\x8c.|X.{4})"
# The protocol, a frame, then a dict with its first key, or a list of segments with their first two.
_SNAPSHOT: Final = lazy_re(
    rb"(?s:\x80[\x02-\x05](?:\x95.{8})?(?:%(dict)s%(text)s(?:segments|device_traces)"
    rb"|\](?:\x94|q.)?\(?%(dict)s%(text)sdevice(?:\x94|q.)?K.%(text)saddress))"
    % {b"dict": _OPENS_DICT, b"text": _TEXT_FOLLOWS}
)


def is_pickle(head: bytes) -> bool:
    """Return whether a file that starts like this is a pickle of protocol 2 or later, as torch writes."""
    return len(head) > 2 and head[0] == 0x80 and 2 <= head[1] <= 5


def is_snapshot(head: bytes) -> bool:
    """Return whether it is a pickle of a memory snapshot, or a list of segments (`memory_snapshot()`)."""
    return _SNAPSHOT.match(head) is not None


def is_memory_timeline(head: bytes) -> bool:
    """Return whether a file that starts like this is a memory timeline: lists of numbers, not objects."""
    return _TIMELINE.match(head) is not None


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


def is_rocprof(head: bytes) -> bool:
    """Return whether a file that starts like this is JSON of rocprofv3."""
    return _ROCPROF.match(head) is not None


def is_pftrace(head: bytes) -> bool:
    """Return whether a file that starts like this is a list of Perfetto's packets."""
    if head.lstrip()[:1] in _OPENINGS or _BINARY.search(head) is None:
        return False
    at = seen = 0
    while at < len(head) and seen < _PACKETS_SEEN:
        found = _PACKET.match(head, at)
        if found is None:
            return False
        length = sum((byte & 0x7F) << 7 * i for i, byte in enumerate(found[1]))
        at, seen = found.end() + length, seen + 1
    return seen > 0


def refuse_uncopied(first: bytes, path: str) -> None:
    """Raise NotATrace for a file of another recorder, where events of torch.profiler's JSON are copied one by
    one."""
    refuse_database(first, path)
    if is_rocprof(first):
        raise NotATrace(
            "it is JSON of rocprofv3, and only traces of torch.profiler can be copied event by event",
            where=path,
            remedy="record with rocprofv3 --output-format pftrace as well, and open that with Perfetto",
        )
    if is_pftrace(first):
        raise NotATrace(
            "it is a binary trace of Perfetto, and only JSON can be copied event by event",
            where=path,
            remedy="open it in Perfetto as it is",
        )


DUMP_HEAD_BYTES: Final = 4 << 10

# torch appends the rank to the prefix that the user chooses, and nothing after it. TensorBoard numbers its
# event files, too.
_DUMP_NAME: Final = lazy_re(r"(?!.*\.tfevents\.).*?(?P<rank>\d{1,9})(\.(json|pickle|pkl))?", re.DOTALL)
_DUMP_START: Final = lazy_re(rb"\x80[\x02-\x05]|\s*\{", re.DOTALL)
# Of all versions one is there: torch writes them first, or JSON sorts them before long ones.
_DUMP_FIELDS: Final = lazy_re(rb"comm_lib_version|nccl_version|pg_config|collective_seq_id")


def rank_in(name: str) -> int | None:
    """Return the rank whose dump a file of this name may be."""
    found = _DUMP_NAME.fullmatch(name)
    return int(found["rank"]) if found else None


def is_dump(head: bytes) -> bool:
    """Return whether a file that starts like this is a dump."""
    return _DUMP_START.match(head) is not None and _DUMP_FIELDS.search(head) is not None
