"""Columns of whole numbers as short texts: each number in as few bytes as it needs, compressed, in base64."""

from __future__ import annotations

import base64
import gzip

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import Int64, UInt8

_BITS = 7
_MOST_BYTES = 10


def packed_text(text: str) -> str:
    """Return a text, compressed."""
    return _base64(text.encode("utf-8", "replace"))


def packed_column(values: npt.NDArray[np.generic]) -> str:
    """Return whole numbers, compressed. The page reads them with `unpackedColumn` of wire/file/columns.ts."""
    whole = np.asarray(values).astype(np.int64)
    return _base64(_varints((whole << 1) ^ (whole >> 63)).tobytes())


def differences(values: npt.NDArray[np.generic]) -> Int64:
    """Return the first number, and by how much each other one is more than the one before it."""
    whole = np.asarray(values).astype(np.int64)
    return np.r_[whole[:1], whole[1:] - whole[:-1]]


def _varints(values: Int64) -> UInt8:
    """Return numbers in groups of seven bits, lowest first. The eighth bit says that another one follows."""
    left = values.view(np.uint64)
    length = np.ones(len(left), np.int64)
    for group in range(1, _MOST_BYTES):
        length += left >> np.uint64(_BITS * group) != 0
    end = np.cumsum(length)
    found = np.zeros(int(end[-1]) if len(end) else 0, np.uint8)
    for group in range(int(length.max(initial=0))):
        has = length > group
        more = np.where(length[has] > group + 1, 128, 0)
        bits = (left[has] >> np.uint64(_BITS * group)) & np.uint64(127)
        found[(end - length)[has] + group] = bits.astype(np.int64) + more
    return found


def _base64(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, mtime=0)).decode("ascii")
