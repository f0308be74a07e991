"""What a test with many cases says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.with_each import with_each


def test_each_case_runs_and_a_failure_names_its_case() -> None:
    ran = []

    @with_each(("one", "other"), [(1, 1), (1, 2), (2, 2)])
    def same(one: int, other: int) -> None:
        ran.append(one)
        assert one == other

    with pytest.raises(AssertionError, match=r"with \{'one': 1, 'other': 2\}: assert 1 == 2"):
        same()
    assert ran == [1, 1]


@with_each("name", ["a", "a"])
def test_each_case_has_a_folder_of_its_own(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch(exist_ok=False)


def test_cases_do_not_share_what_is_one_tests_own() -> None:
    def change(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NAME", name)

    with pytest.raises(AssertionError, match="monkeypatch"):
        with_each("name", ["a", "b"])(change)
