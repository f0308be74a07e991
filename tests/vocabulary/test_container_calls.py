from __future__ import annotations

import pytest

from tb_gpudiag.vocabulary.api_calls import ADDS, REMOVES, call_of


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("<built-in method append of list object at 0x7f20>", ("list", "append")),
        ("<built-in method append of StackSummary object at 0x7f20>", ("list", "append")),
        ("<built-in method append of collections.deque object at 0x7f20>", ("deque", "append")),
        ("<built-in function heappush>", ("heap", "heappush")),
    ],
)
def test_what_a_call_adds_to_is_its_type(name: str, call: tuple[str, str]) -> None:
    assert ADDS.fullmatch(name)
    assert not REMOVES.fullmatch(name)
    assert call_of(name) == call
