"""Parameters of which `make quick` takes some, and `make test` all."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builder import GENERATIONS


def slow(*values: Any) -> list[Any]:
    """Mark values of a parameter: `[*first, *slow("second", "third")]`."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


EACH_GENERATION = [GENERATIONS[0], *slow(*GENERATIONS[1:-1]), GENERATIONS[-1]]
"""Every generation of the format; `make quick` takes the oldest and the newest."""
