from __future__ import annotations

import pytest

from tools.release_notes import notes

CHANGELOG = """# Changelog

## [Unreleased]

- Next.

## [0.2.0] - 2030-01-01

- Second.

## [0.1.0]

- First.
"""


def test_the_section_of_a_version_is_its_notes() -> None:
    assert notes(CHANGELOG, "0.2.0") == "- Second.\n"
    assert notes(CHANGELOG, "0.1.0") == "- First.\n"


def test_a_version_without_a_section_is_not_released() -> None:
    with pytest.raises(SystemExit, match=r"0\.1"):
        notes(CHANGELOG, "0.1")
