"""Lists of ranks survive as text, and text that no digest has is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpudiag.digest.digest_files import MOST_RANKS, ranks_from_text, ranks_to_text
from tests.with_each import with_each


@given(st.sets(st.integers(0, 2**31 - 1), max_size=30) | st.sets(st.integers(0, 40)))
def test_any_ranks_come_back(ranks: set[int]) -> None:
    assert ranks_from_text(ranks_to_text(sorted(ranks))) == tuple(sorted(ranks))


@with_each(
    ("ranks", "text"),
    [
        ([], ""),
        ([5], "5"),
        (range(10_000), "0-9999"),
        (range(3, 10_000, 8), "3-9995:8"),
        ([0, 1, 2, 3, 16], "0-3 16"),
    ],
)
def test_regular_groups_are_short(ranks: list[int], text: str) -> None:
    assert ranks_to_text(ranks) == text


@with_each(
    "text",
    ["0-2147483646", f"0-{MOST_RANKS}", "0-5 3", "5 5", "7-3", "0-8:0", "8-0:-1", "-1", "2147483648", "x"],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        ranks_from_text(text)
