"""Repair what some writers get wrong in JSON.

Only text that JSON does not allow is changed. So valid text stays the same except for white space, and
repairing text twice is the same as repairing it once.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

import numpy as np

from tb_gpudiag.trace.kineto.structure import runs
from tb_gpudiag.vocabulary.patterns import lazy_re

_CONTROL_TO_SPACE: Final = bytes(ord(" ") if code < 0x20 else code for code in range(256))
_NOT_AVAILABLE: Final = lazy_re(rb'(?i)("[ ]*:[ ]*)(?:N/A|-?(?:nan|inf(?:inity)?))(?=[ ]*[,}])')
_MAYBE_NOT_AVAILABLE: Final = lazy_re(rb"(?i):[ ]*-?[ni][/an]")
_SURROGATE: Final = lazy_re(rb"\\u[dD][89a-fA-F]")
# All escapes in turn: a pair of surrogates, a lone one, and any other.
_ESCAPE: Final = lazy_re(
    rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
_HEX: Final = np.zeros(256, np.bool_)
_HEX[list(b"0123456789abcdefABCDEF")] = True
_ESCAPABLE: Final = np.zeros(256, np.bool_)
_ESCAPABLE[list(b'"\\/bfnrtu')] = True


def repaired(text: bytes) -> bytes:
    """Repair text of JSON.

    Control characters become spaces, bare backslashes are doubled, `N/A`, `nan` and `inf` become null, broken
    UTF-8 and lone surrogates become U+FFFD. An incomplete UTF-8 sequence or escape at the very end stays: its
    rest may follow.
    """
    text = text.translate(_CONTROL_TO_SPACE)
    text = _utf8(text)
    if b"\\" in text:
        text = _escapes(text)
    if _MAYBE_NOT_AVAILABLE.search(text):
        text = _NOT_AVAILABLE.sub(rb"\1null", text)
    return text


def _utf8(text: bytes) -> bytes:
    try:
        text.decode()
        return text
    except UnicodeDecodeError:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return decoder.decode(text).encode() + decoder.getstate()[0]


def _escapes(text: bytes) -> bytes:
    codes = np.frombuffer(text, np.uint8)
    last, length = runs(np.flatnonzero(codes == ord("\\")))
    last = last[(length % 2 == 1) & (last < len(codes) - 1)]  # an even run escapes itself
    following = codes[last + 1]
    bare = ~_ESCAPABLE[following]
    unicode = np.flatnonzero(following == ord("u"))
    digits = last[unicode, None] + np.arange(2, 6)
    inside = digits < len(codes)
    bare[unicode] = ~(_HEX[codes[np.minimum(digits, len(codes) - 1)]] | ~inside).all(axis=1)
    if bare.any():
        text = np.insert(codes, last[bare], ord("\\")).tobytes()
    if _SURROGATE.search(text):
        text = _ESCAPE.sub(lambda escape: rb"\ufffd" if escape["lone"] else escape[0], text)
    return text


def has_lone_surrogate(text: bytes) -> bool:
    """Return whether a string has half of an escaped pair of surrogates: not Unicode, and so not JSON."""
    if not _SURROGATE.search(text):
        return False
    return any(escape["lone"] for escape in _ESCAPE.finditer(text))
