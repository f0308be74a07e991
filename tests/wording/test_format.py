from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpudiag.wording.format import column_us, count, one_line, share, size_bytes, time_ns, time_us


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0 ns"),
        (412, "412 ns"),
        (999.6, "1.00 µs"),
        (12_345, "12.3 µs"),
        (99_960, "100 µs"),
        (999_600, "1.00 ms"),
        (1_234_567, "1.23 ms"),
        (619_562_704, "620 ms"),
        (1_211_180_000, "1.21 s"),
        (125_000_000_000, "2 min 5 s"),
        (-12_345, "-12.3 µs"),
        (float("nan"), "n/a"),
    ],
)
def test_a_time_has_three_figures(nanoseconds: float, text: str) -> None:
    assert time_ns(nanoseconds) == text
    assert time_us(nanoseconds / 1e3) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (512, "512 B"), (1536, "1.50 KiB"), (16 * 2**30, "16 GiB"), (2**40, "1 TiB")],
)
def test_a_size_is_in_powers_of_1024(size: float, text: str) -> None:
    assert size_bytes(size) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 10, "0 %"),
        (1, 10_000, "< 0.1 %"),
        (0.394, 1, "39.4 %"),
        (99_999, 100_000, "> 99.9 %"),
        (10, 10, "100 %"),
        (25, 10, "250 %"),
        (1, 0, "n/a"),
    ],
)
def test_a_share_never_rounds_something_to_nothing(part: float, whole: float, text: str) -> None:
    assert share(part, whole) == text


def test_a_count_takes_the_right_form() -> None:
    assert count(1_234) == "1,234"
    assert count(1, "launch", "launches") == "1 launch"
    assert count(2, "launch", "launches") == "2 launches"
    assert count(0, "step") == "0 steps"


def _number(text: str) -> float:
    return float(text.split()[0].replace(",", ""))


@given(st.lists(st.integers(0, 10**12), max_size=14))
def test_times_in_a_column_add_up_as_printed(nanoseconds: list[int]) -> None:
    parts = [ns / 1e3 for ns in nanoseconds]
    shown, total = column_us(parts, sum(nanoseconds) / 1e3)
    assert round(sum(map(_number, shown)), 3) == _number(total)
    unit = {text.split()[1] for text in [*shown, total]}
    assert len(unit) == 1
    step = {"µs": 0.1, "ms": 0.01 * 1e3, "s": 0.01 * 1e6}[unit.pop()]
    scale = {"µs": 1, "ms": 1e3, "s": 1e6}[total.split()[1]]
    for text, part in zip(shown, parts, strict=True):
        assert abs(_number(text) * scale - part) <= step * 1.001


def test_a_column_hides_no_contradiction() -> None:
    shown, total = column_us([10.0, 20.0], 100.0)
    assert (shown, total) == (["10.0 µs", "20.0 µs"], "100.0 µs")


def test_a_name_cannot_move_the_cursor_or_turn_the_text_round() -> None:
    assert one_line("a\x1b[31mb\r\nc\u202ed\u200be") == "a\ufffd[31mb  c\ufffdd\ufffde"
    assert one_line("\ud800").encode() == "\ufffd".encode()


def test_a_name_is_bounded() -> None:
    assert one_line("x" * 400) == "x" * 400
    assert one_line("x" * 5_160) == "x" * 399 + "…"
