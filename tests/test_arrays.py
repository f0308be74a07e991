"""What many modules compute of columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from tb_gpudiag.arrays import stable_order
from tests.with_each import with_each

INT64 = np.iinfo(np.int64)


@with_each("kind", [np.int64, np.uint64])
@given(
    st.lists(st.integers(0, 5) | st.integers(0, INT64.max)),
    st.sampled_from([1, 512, 1 << 40]),
)
def test_a_stable_order_is_that_of_a_stable_sort(kind: type, values: list[int], unit: int) -> None:
    column: npt.NDArray[Any] = np.array([value // unit * unit for value in values], kind)
    assert stable_order(column).tolist() == np.argsort(column, kind="stable").tolist()


def test_numbers_far_below_zero_have_an_order() -> None:
    column = np.array([INT64.max, INT64.min, 0, INT64.min])
    assert stable_order(column).tolist() == [1, 3, 2, 0]
