"""NameMatcher matches what `re` matches, with every pattern of vocabulary/."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_gpudiag import vocabulary
from tb_gpudiag.vocabulary.name_matcher import NameMatcher
from tb_gpudiag.vocabulary.patterns import LONGEST_MATCHED, not_after, not_before
from tests.real_traces import SMALL_FILES, real_facts

MODULES = [
    importlib.import_module(found.name)
    for found in pkgutil.iter_modules(vocabulary.__path__, f"{vocabulary.__name__}.")
    if "credential" not in found.name  # not about names: see tests/trace/credentials
]


def _patterns(where: str, value: object) -> Iterator[tuple[str, re.Pattern[str]]]:
    """Yield the patterns in a value, also in tables."""
    if hasattr(value, "pattern"):
        yield where, cast("re.Pattern[str]", value)
    elif isinstance(value, dict | list | tuple):
        for i, one in enumerate(value.values() if isinstance(value, dict) else value):
            yield from _patterns(f"{where}[{i}]", one)


PATTERNS = {
    where: pattern
    for module in MODULES
    for name, value in vars(module).items()
    for where, pattern in _patterns(f"{module.__name__.rpartition('.')[2]}.{name}", value)
}
RECORDED = Path(__file__).parent / "kernel_names.txt"


def check(names: Sequence[str], *patterns: re.Pattern[str]) -> None:
    alone, among = NameMatcher(names), NameMatcher(["z", *names])
    some = np.arange(len(names))
    for pattern in patterns:
        whole = [pattern.fullmatch(name, 0, LONGEST_MATCHED) is not None for name in names]
        found = [pattern.search(name, 0, LONGEST_MATCHED) is not None for name in names]
        assert alone.matches(pattern).tolist() == whole == among.matches_some(pattern, some + 1).tolist()
        assert alone.contains(pattern, some).tolist() == found == among.contains(pattern, some + 1).tolist()


def test_the_patterns_are_found() -> None:
    assert {"api_calls.LAUNCH_CALL", "operators.DATA_MOVER", "kernel_names._FAMILIES[3][1]"} <= set(PATTERNS)


@pytest.mark.slow
def test_every_pattern_is_one_of_re2_which_is_linear_whatever_the_name() -> None:
    not_in_re2 = re.compile(r"\(\?(?:[=!(]|<[=!]|P=)|\\[1-9Z]")
    odd = {where: found.pattern for where, found in PATTERNS.items() if not_in_re2.search(found.pattern)}
    assert not odd, "RE2 has no lookarounds and no \\Z"
    check(["x"], *PATTERNS.values())  # RE2 takes them


@pytest.fixture(scope="module")
def recorded() -> list[str]:
    lines = RECORDED.read_text(encoding="utf-8").splitlines()
    return ["", *(line.split(maxsplit=1)[-1] for line in lines)]


@pytest.mark.slow
def test_recorded_names(recorded: list[str]) -> None:
    check(recorded, *PATTERNS.values())


@pytest.mark.slow
@settings(max_examples=300)
@given(st.sampled_from(list(PATTERNS)), st.data())
def test_names_that_match_or_nearly_do(pattern: str, data: st.DataObject) -> None:
    printable = st.characters(min_codepoint=32, max_codepoint=126)
    name = data.draw(st.from_regex(PATTERNS[pattern].pattern, fullmatch=True, alphabet=printable))
    check([name, name + data.draw(printable), name[:-1], name.upper()], PATTERNS[pattern])


def test_other_characters_than_ascii() -> None:
    names = ["forward\n", "κernel_٣", "K1", "\x1c", "half a pair \ud83d", "größe"]
    for text in (r"\w+", r"[a-z]+\d", r".+", r"\s", r"a\sb", r"\w+_\d", r"[^a-z]"):
        check(names, re.compile(text, re.IGNORECASE | re.ASCII))
        check(names, re.compile(text, re.ASCII))


@given(st.text("fbgem", max_size=8))
def test_what_is_not_after_or_before_a_text(name: str) -> None:
    for with_helper, lookaround in (
        (rf"{not_after('fb')}gem", r"(?<!fb)gem"),
        (rf"gem{not_before('be')}", r"gem(?!be)"),
    ):
        assert bool(re.search(with_helper, name)) == bool(re.search(lookaround, name))


def test_only_the_beginning_of_a_long_name_counts() -> None:
    names = ["a" * LONGEST_MATCHED + "b", "a" * (LONGEST_MATCHED - 1) + "b"]
    assert NameMatcher(names).matches(re.compile("a+")).tolist() == [True, False]


def test_what_one_matcher_has_found_is_right_for_another() -> None:
    name = "a" * 150 + "b"
    for longest, found in ((100, True), (1_000, False), (100, True)):
        assert NameMatcher([name], longest).matches(re.compile("a+")).tolist() == [found]
    for count in (3, 90, 2_000, 90):
        check([f"kernel_{i}" for i in range(count)], re.compile(r"kernel_\d*7"))


def test_no_names() -> None:
    assert NameMatcher([]).matches(re.compile("a")).shape == (0,)


@pytest.mark.slow
@pytest.mark.parametrize("file", SMALL_FILES)
def test_names_of_real_traces(file: str) -> None:
    names = real_facts(file).events.names
    matcher = NameMatcher(names)
    for pattern in PATTERNS.values():
        expected = [pattern.fullmatch(name, 0, LONGEST_MATCHED) is not None for name in names]
        assert np.array_equal(matcher.matches(pattern), expected)
