"""The scanner, compared with a plain loop over characters."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tb_gpudiag.trace.kineto.structure import BracketScanner, elements, segmented

TEXTS = st.binary(max_size=80) | st.text('{}[]"\\,a', max_size=80).map(str.encode)


def slow_marks(text: bytes, wanted: str = "{}[]") -> list[tuple[int, int]]:
    """Return the brackets (or the `wanted` characters) outside strings, and the depth after each."""
    marks = []
    depth, in_string, escaped = 0, False, False
    for at, code in enumerate(text):
        char = chr(code)
        if char == '"' and not escaped:
            in_string = not in_string
        elif not in_string:
            depth += (char in "{[") - (char in "}]")
            if char in wanted:
                marks.append((at, depth))
        escaped = char == "\\" and not escaped
    return marks


def slow_commas(text: bytes) -> list[int]:
    """Return the commas at depth 0 outside strings."""
    return [at for at, depth in slow_marks(text, ",") if depth == 0]


@given(TEXTS, st.lists(st.integers(0, 80), max_size=5))
def test_scanning_in_pieces(text: bytes, cuts: list[int]) -> None:
    scanner = BracketScanner()
    found: list[tuple[int, int]] = []
    commas: list[int] = []
    bounds = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for begin, end in itertools.pairwise(bounds):
        marks = scanner.feed(text[begin:end])
        found += zip((marks.at + begin).tolist(), marks.depth.tolist(), strict=True)
        commas += (marks.top_commas() + begin).tolist()
    assert found == slow_marks(text)
    assert commas == slow_commas(text)


@given(
    st.lists(st.text('{}[]"\\,a', min_size=1, max_size=12).filter(lambda t: not t.endswith("\\")), min_size=1)
)
def test_every_segment_starts_at_depth_zero(pieces: list[str]) -> None:
    texts = [piece.encode() for piece in pieces]
    starts = np.cumsum([0, *map(len, texts)])[:-1]
    marks = segmented(b"".join(texts), starts)
    slow = [(i, starts[i] + at, depth) for i, text in enumerate(texts) for at, depth in slow_marks(text)]
    assert list(zip(marks.segment.tolist(), marks.at.tolist(), marks.depth.tolist(), strict=True)) == slow


@given(TEXTS)
def test_elements(text: bytes) -> None:
    marks = slow_marks(text)
    below = next((i for i, (_, depth) in enumerate(marks) if depth < 0), len(marks))
    found = elements(text)
    assert found.array_end == (marks[below][0] if below < len(marks) else -1)
    end = found.array_end if found.array_end >= 0 else len(text)
    commas = [at for at in slow_commas(text) if at < end]
    ended = [at + 1 for at, depth in marks[:below] if depth == 0]
    assert found.last_end == max(ended + commas, default=0)
    assert found.depth == max([d for at, d in marks[:below] if at < found.last_end], default=0)
    assert found.open_depth == max([d for at, d in marks[:below] if at >= found.last_end], default=0)
