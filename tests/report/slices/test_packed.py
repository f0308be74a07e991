from __future__ import annotations

import base64
import gzip

import numpy as np

from tb_gpudiag.report.slices.embedded_events import differences, packed_column
from tests.with_each import with_each


def _unpacked(text: str) -> list[int]:
    found = []
    value = shift = 0
    for byte in gzip.decompress(base64.b64decode(text)):
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            found.append((value >> 1) ^ -(value & 1))
            value = shift = 0
    return found


@with_each("values", [[], [0], [1, -1, 63, -64, 64, 127, 128, -129], [2**53, -(2**53), 5], [2**62, -(2**63)]])
def test_numbers_of_any_size_are_packed(values: list[int]) -> None:
    assert _unpacked(packed_column(np.array(values, np.int64))) == values


def test_small_numbers_take_a_byte() -> None:
    few, many = (len(gzip.decompress(base64.b64decode(packed_column(np.arange(n) % 60)))) for n in (10, 1000))
    assert (few, many) == (10, 1000)


def test_differences_add_up_to_the_numbers() -> None:
    values = np.array([5, 3, 1000, -7], np.int32)
    assert np.cumsum(differences(values)).tolist() == values.tolist()
