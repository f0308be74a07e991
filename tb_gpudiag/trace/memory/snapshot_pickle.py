"""Unpickle plain data, and nothing else.

A pickle is a program that builds objects and can run anything. Two checks prevent that. First, every
instruction is checked before any of them runs. Only those pass that build numbers, text, lists, dicts and
pairs of small numbers, with lengths that fit the file. Second, the unpickler refuses every class and
function.

The second check alone is not enough: nested tuples as a key of a dict overflow the C stack when they are
hashed, and one large memo index takes gigabytes. The first check works only if the unpickler reads the same
instructions: see _Whole.
"""

from __future__ import annotations

import copyreg
import pickle
import re
from typing import Any, Final

import numpy as np

from tb_gpudiag.errors import NotATrace, TooLarge, TraceError, Unsafe
from tb_gpudiag.trace.files.source import Limits
from tb_gpudiag.vocabulary.patterns import lazy_re

_REMEDY: Final = "name a file that torch.cuda.memory._dump_snapshot wrote"

# Instructions as regular expressions over their bytes. See pickletools for their names.
_SMALL: Final = rb"K.|M..|J.{4}"
_NUMBER: Final = _SMALL + rb"|\x8a(?:\x00|\x01.|%s)" % b"|".join(
    b"\\x%02x.{%d}" % (size, size) for size in range(2, 10)
)


def _short_texts(sizes: range) -> bytes:
    """Pattern of texts with these lengths. Halving the range is faster than trying each length in turn."""
    if len(sizes) <= 16:
        return b"|".join(b"\\x%02x.{%d}" % (size, size) for size in sizes)
    halves = sizes[: len(sizes) // 2], sizes[len(sizes) // 2 :]
    return b"|".join(b"(?=[\\x%02x-\\x%02x])(?:%s)" % (h[0], h[-1], _short_texts(h)) for h in halves)


_INSTRUCTIONS: Final = b"|".join(
    (
        rb"[\x94}\](uesaN\x88\x89]",  # memoize, create and fill containers, None, True, False
        rb"h.|j.{4}|q.|r..[\x00-\x%02x][\x00-\x%02x]",  # the memo; the last are its index's highest bytes
        # A number, or a pair of small ones, such as a pool's number. Pairs of large numbers can be chosen
        # such that thousands have the same hash: as keys of a dict, they take hours.
        rb"(?:%s)(?:%s)\x86|%s" % (_SMALL, _SMALL, _NUMBER),
        rb"\x8c(?:%s)" % _short_texts(range(256)),
        rb"\x95.{8}|G.{8}",  # a frame, a float
    )
)
# Bytes that are counted at a time: they fit into the cache.
_COUNTED_AT_ONCE: Final = 256 << 10
# Instructions matched at a time. More of them take more memory.
_RUN_LENGTH: Final = 1000

# Bytes in the file per memo entry: an object takes one, `r` with an index four. The first indices are
# shorter.
_MEMO_ENTRY: Final = 5

# A small file may have any content.
_ANY_CONTAINERS: Final = 100_000

_STOP: Final = b"."
_LONG_TEXT: Final = b"X"  # its length follows: four bytes
_LONG_TEXT_HEAD: Final = 5

BUILDS_OBJECTS: Final = frozenset(b"ci\x93Rob\x81\x92\x82\x83\x84PQ")
"""Instructions that fetch a class or a function, call it, or give an object its state."""

_NAME_IN_LINES: Final = lazy_re(rb"[ci]([\w.]{1,100})\n([\w.]{1,100})\n")
_NAME_ON_STACK: Final = lazy_re(
    rb"\x8c.([\w.]{1,100})(?:\x94|q.)?\x8c.([\w.]{1,100})(?:\x94|q.)?\Z", re.DOTALL
)


def load_plain(data: bytes, limits: Limits, path: str) -> Any:
    """Return the value of a pickle of plain data.

    Raises Unsafe if it would build anything else, NotATrace if it is cut off or has instructions that no
    memory snapshot has, and TooLarge if it would take far more memory than a snapshot of this size.
    """
    _check_instructions(data, path)
    check_containers(data, limits, path)
    # find_class is not called for classes that other pickles left in the interpreter's cache of extensions.
    copyreg.clear_extension_cache()
    try:
        return _Unpickler(data, path).load()
    except (TraceError, MemoryError):
        raise
    except Exception as error:  # the instructions are allowed, but may be in a wrong order
        raise NotATrace(
            f"the pickle is damaged ({type(error).__name__})", where=path, remedy=_REMEDY
        ) from error


def check_containers(data: bytes, limits: Limits, path: str) -> int:
    """Raise TooLarge if a pickle would take far more memory than a snapshot of this size. Return how many
    dicts it may have.

    Only lists and dicts take much more memory than bytes in the file. Counting their instructions wherever
    such a byte stands never gives too few.
    """
    dicts = count_of(data, b"}")
    containers = dicts + count_of(data, b"]")
    most = min(limits.max_snapshot_entries, _ANY_CONTAINERS + len(data) // limits.least_bytes_per_container)
    if containers > most:
        raise TooLarge(
            f"it has about {containers:,} lists and dicts, more than the {most:,} of a snapshot of its size",
            where=path,
            remedy="record with a smaller max_entries, or raise Limits.max_snapshot_entries",
        )
    return dicts


def count_of(data: bytes, byte: bytes) -> int:
    """Return data.count(byte), in half the time."""
    values, wanted = np.frombuffer(data, np.uint8), ord(byte)
    blocks = (values[at : at + _COUNTED_AT_ONCE] for at in range(0, len(values), _COUNTED_AT_ONCE))
    return sum(int(np.count_nonzero(block == wanted)) for block in blocks)


class _Whole:
    """File that returns everything on the first peek, so that the unpickler reads byte after byte.

    If a file comes in pieces, the unpickler reads a frame at once. When an instruction crosses the end of the
    frame, it forgets the rest of the frame and continues elsewhere than _check_instructions.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data

    def peek(self, _size: int) -> bytes:
        data, self._data = self._data, b""
        return data

    def read(self, _size: int = -1) -> bytes:
        return b""

    def readline(self) -> bytes:
        return b""


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, path: str) -> None:
        super().__init__(_Whole(data))
        self._path = path

    def find_class(self, module: str, name: str) -> Any:
        raise _unsafe(f"{module}.{name}", self._path)

    def persistent_load(self, pid: Any) -> Any:
        raise _unsafe("an object kept elsewhere", self._path)


def _check_instructions(data: bytes, path: str) -> None:
    """Raise Unsafe or NotATrace unless all instructions build plain data and the last one is there."""
    # The unpickler allocates the memo at once, so memo indices are bounded: each entry needs an object and an
    # `r` in the file.
    most = len(data) // _MEMO_ENTRY
    bounds = (0xFF, min(0x7F, most >> 24)) if most >> 24 else (most >> 16, 0)
    run = re.compile(rb"(?s:%s){0,%d}" % (_INSTRUCTIONS % bounds, _RUN_LENGTH))
    at, size = 2, len(data)  # after the protocol
    while at < size:
        ended = run.match(data, at)
        assert ended is not None  # the pattern matches the empty text
        if ended.end() > at:
            at = ended.end()
        elif data.startswith(_LONG_TEXT, at) and at + _LONG_TEXT_HEAD <= size:
            at += _LONG_TEXT_HEAD + int.from_bytes(data[at + 1 : at + _LONG_TEXT_HEAD], "little")
        elif data.startswith(_STOP, at):
            return
        else:
            raise _refused(data, at, path)
    raise _cut_off(path)


def _refused(data: bytes, at: int, path: str) -> TraceError:
    if data[at] in BUILDS_OBJECTS:
        named = _NAME_IN_LINES.match(data, at) or _NAME_ON_STACK.search(data[max(0, at - 300) : at])
        return _unsafe(".".join(part.decode() for part in named.groups()) if named else "", path)
    # The instruction would pass if the file had the rest of it.
    whole = re.compile(rb"(?s:%s)" % (_INSTRUCTIONS % (0xFF, 0x7F)))
    if len(data) - at < 300 and whole.match(data[at:] + bytes(300)):
        return _cut_off(path)
    return NotATrace("it is a pickle, but not a memory snapshot", where=path, remedy=_REMEDY)


def _cut_off(path: str) -> NotATrace:
    return NotATrace(
        "the pickle ends in the middle",
        where=path,
        remedy="if it is still being written, try again later; otherwise copy or record it again",
    )


def _unsafe(name: str, path: str) -> Unsafe:
    builds = f"objects ({name})" if name else "objects"
    return Unsafe(
        f"this pickle builds {builds}, so it is not a memory snapshot and was not read",
        where=path,
        remedy=f"do not open it with pickle.load unless you trust its source; {_REMEDY}",
    )
