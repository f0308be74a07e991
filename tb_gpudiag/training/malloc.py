"""How much memory the process has got from glibc's malloc, for tensors and everything else."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from typing import Any, ClassVar, Final

_PROBE: Final = 2**20
"""Bytes of a tensor that must show, or tensors are allocated by something else, such as jemalloc."""


class _Mallinfo2(ctypes.Structure):
    _fields_: ClassVar = [
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")),
        *((name, ctypes.c_size_t) for name in ("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")),
    ]


def malloc_bytes() -> int | None:
    """Return the bytes that are allocated, in all threads; None where tensors are not in them. It takes
    0.5 µs, and longer if much is free in small pieces."""
    read = _reader()
    return _in_use(read) if read is not None else None


def _in_use(read: Callable[[], Any]) -> int:
    info = read()
    return int(info.uordblks + info.hblkhd)


@functools.cache
def _reader() -> Callable[[], Any] | None:
    try:
        read = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError, TypeError):  # no glibc, or one before 2.33; Windows
        return None
    read.restype = _Mallinfo2
    before = _in_use(read)
    probe = sys.modules["torch"].empty(_PROBE, dtype=sys.modules["torch"].uint8)
    shown = _in_use(read) - before >= probe.nbytes
    return read if shown else None
