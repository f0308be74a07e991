from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tb_gpudiag.wording import format as formatter
from tb_gpudiag.wording.format import column_us, figures, one_line, ordinal, time_ns, time_us
from tb_gpudiag.wording.quantity import bandwidth, number, ratio
from tests.with_each import with_each

VECTORS: dict[str, list[list[Any]]] = json.loads(
    Path(__file__).with_name("format_vectors.json").read_text(encoding="utf-8")
)
"""Function -> its arguments and its text; the frontend's tests run the same on its own formatter."""


def _value(written: Any) -> Any:
    """JSON has no NaN and no infinity: they are written as text."""
    if isinstance(written, list):
        return [_value(each) for each in written]
    return float(written) if written in {"NaN", "Infinity", "-Infinity"} else written


@with_each("function", VECTORS)
def test_the_shared_vectors(function: str) -> None:
    results = 2 if function == "column_us" else 1
    for row in VECTORS[function]:
        arguments, expected = [_value(each) for each in row[:-results]], row[-results:]
        shown = getattr(formatter, function)(*arguments)
        assert (list(shown) if results == 2 else [shown]) == expected, row


def test_nanoseconds_and_microseconds_are_the_same_times() -> None:
    assert time_ns(12_345) == time_us(12.345) == "12.3\u00a0µs"


def test_a_rate_is_written_like_every_other_figure() -> None:
    assert str(bandwidth(31.25)) == "31.3\u00a0GB/s"
    assert str(bandwidth(1234)) == "1,234\u00a0GB/s"
    assert str(ratio(2.5)) == "2.50×"
    assert str(number(2.5, "kernel")) == "3 kernels"


def _number(text: str) -> float:
    """`< 0.01 ms` counts as 0."""
    return 0.0 if text.startswith("<") else float(text.split()[0].replace(",", ""))


@given(st.lists(st.integers(0, 10**12), max_size=14))
def test_times_in_a_column_add_up_as_printed(nanoseconds: list[int]) -> None:
    parts = [ns / 1e3 for ns in nanoseconds]
    shown, total = column_us(parts, sum(nanoseconds) / 1e3)
    assert round(sum(map(_number, shown)), 3) == _number(total)
    unit = {text.split()[-1] for text in [*shown, total]}
    assert len(unit) == 1
    step = {"µs": 0.1, "ms": 0.01 * 1e3, "s": 0.01 * 1e6}[unit.pop()]
    scale = {"µs": 1, "ms": 1e3, "s": 1e6}[total.split()[-1]]
    for text, part in zip(shown, parts, strict=True):
        assert abs(_number(text) * scale - part) <= step * 1.001


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e18, max_value=1e18))
def test_a_number_is_rounded_to_the_nearest(value: float) -> None:
    text = figures(value).replace(",", "")
    if text[0] not in "<>":
        places = len(text.partition(".")[2])
        assert abs(float(text) - value) <= 0.5 * 10.0**-places * (1 + 1e-9)


def test_a_name_cannot_move_the_cursor_or_turn_the_text_round() -> None:
    assert one_line("a\x1b[31mb\r\nc\u202ed\u200be") == "a\ufffd[31mb  c\ufffdd\ufffde"
    assert one_line("\ud800").encode() == "\ufffd".encode()


def test_a_name_is_bounded() -> None:
    assert one_line("x" * 400) == "x" * 400
    assert one_line("x" * 5_160) == "x" * 399 + "…"


def test_ranks_end_as_they_are_spoken() -> None:
    ranks = (1, 2, 3, 4, 11, 12, 13, 21, 22, 111, 123)
    assert [ordinal(rank) for rank in ranks] == [
        *("1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "111th", "123rd")
    ]
