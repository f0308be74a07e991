"""NameMatcher matches what `re` matches, with every pattern of vocabulary/."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_gpudiag import vocabulary
from tb_gpudiag.trace.events import NameMatcher
from tb_gpudiag.vocabulary.patterns import LONGEST_MATCHED
from tests.real_traces import FILES, real_facts

MODULES = [
    importlib.import_module(found.name)
    for found in pkgutil.iter_modules(vocabulary.__path__, f"{vocabulary.__name__}.")
]
PATTERNS: dict[str, re.Pattern[str]] = {
    f"{module.__name__.rpartition('.')[2]}.{name}": value
    for module in MODULES
    for name, value in vars(module).items()
    if isinstance(value, re.Pattern) and isinstance(value.pattern, str)
}
FOR_RE2 = [name for name, pattern in PATTERNS.items() if "(?" not in pattern.pattern.replace("(?:", "")]
RECORDED = Path(__file__).parents[1] / "vocabulary" / "kernel_names.txt"


def check(names: Sequence[str], pattern: re.Pattern[str]) -> None:
    expected = [pattern.fullmatch(name, 0, LONGEST_MATCHED) is not None for name in names]
    assert NameMatcher(names).matches(pattern).tolist() == expected


def test_the_patterns_are_found() -> None:
    assert {"api_calls.LAUNCH_CALL", "operators.DATA_MOVER"} <= set(FOR_RE2)
    assert "kernel_names.COMMUNICATION_KERNEL" in PATTERNS


@pytest.fixture(scope="module")
def recorded() -> list[str]:
    lines = RECORDED.read_text(encoding="utf-8").splitlines()
    return ["", *(line.split(maxsplit=1)[-1] for line in lines)]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_recorded_names(pattern: str, recorded: list[str]) -> None:
    check(recorded, PATTERNS[pattern])


@pytest.mark.parametrize("pattern", FOR_RE2)
@settings(max_examples=5)
@given(st.data())
def test_names_that_match_or_nearly_do(pattern: str, data: st.DataObject) -> None:
    name = data.draw(st.from_regex(PATTERNS[pattern], fullmatch=True))
    check([name, name + data.draw(st.characters()), name[:-1], name.upper()], PATTERNS[pattern])


def test_other_characters_than_ascii() -> None:
    names = ["forward\n", "κernel_٣", "K1", "\u212a1", "a\x0bb", "\x1c"]
    for text in (r"\w+", r"[a-z]+\d", r".+", r"\s", r"a\sb", r"\w+_\d"):
        check(names, re.compile(text, re.IGNORECASE))
        check(names, re.compile(text))


def test_only_the_beginning_of_a_long_name_counts() -> None:
    names = ["a" * LONGEST_MATCHED + "b", "a" * (LONGEST_MATCHED - 1) + "b"]
    assert NameMatcher(names).matches(re.compile("a+")).tolist() == [True, False]


def test_no_names() -> None:
    assert NameMatcher([]).matches(re.compile("a")).shape == (0,)


@pytest.mark.parametrize("file", FILES)
def test_names_of_real_traces(file: str) -> None:
    names = real_facts(file).events.names
    matcher = NameMatcher(names)
    for pattern in PATTERNS.values():
        expected = [pattern.fullmatch(name, 0, LONGEST_MATCHED) is not None for name in names]
        assert np.array_equal(matcher.matches(pattern), expected)
