"""Files of Perfetto: how to tell them. pftrace.py reads them, and imports much more."""

from __future__ import annotations

import re
from typing import Final

from tb_gpudiag.errors import NotATrace

# Each packet of Perfetto's binary traces: the tag of field 1, and a length of up to five bytes.
_PACKET: Final = re.compile(rb"\n([\x80-\xff]{0,4}[\x00-\x7f])", re.DOTALL)
_PACKETS_SEEN: Final = 3
_BINARY: Final = re.compile(rb"[\x00-\x08\x0e-\x1f]")  # not in text
_OPENINGS: Final = (b"{", b"[", b"<")


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


def refuse_pftrace(first: bytes, path: str) -> None:
    """Raise NotATrace for a trace of Perfetto, where events of JSON are copied one by one."""
    if is_pftrace(first):
        raise NotATrace(
            "it is a binary trace of Perfetto, and only JSON can be copied event by event",
            where=path,
            remedy="open it in Perfetto as it is",
        )
