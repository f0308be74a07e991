"""Traces of Triton's proton (`proton.start(data="trace")`): kernels, and a document for each stream.

The documents follow one another, a line each, and their events have no `pid`: which GPU it was is not said.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tb_gpudiag.vocabulary.patterns import lazy_re

NOTE: Final = "recorded by Triton's proton: kernels alone, and the file does not say which GPU: 0 is assumed"

_START: Final = lazy_re(rb'\s*\{"displayTimeUnit":"us","traceEvents":\[\{"args":\{"call_stack":\[')
# Names cannot contain these: in them, quotes are escaped.
_NEXT_DOCUMENT: Final = lazy_re(rb'\]\}\s*\{"displayTimeUnit":"us","traceEvents":\[')
_WITHOUT_PID: Final = b'"ph":"X","tid":'
_ELEMENT: Final = b'{"args":'


def is_proton_trace(head: bytes) -> bool:
    """Return whether a file that starts like this is such a trace."""
    return _START.match(head) is not None


def joined(blocks: Iterator[bytes], longest: int) -> Iterator[bytes]:
    """Yield the text as one document. longest: bytes that are held back at most, for an event to end."""
    held = b""
    for block in blocks:
        held += block
        cut = max(held.rfind(_ELEMENT), 0) if len(held) <= longest else len(held)
        yield _mended(held[:cut])
        held = held[cut:]
    yield _mended(held)


def _mended(text: bytes) -> bytes:
    return _NEXT_DOCUMENT.sub(b",", text).replace(_WITHOUT_PID, b'"ph":"X","pid":0,"tid":')
