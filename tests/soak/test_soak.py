from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.soak.soak import soak

SECONDS = 6


@pytest.mark.slow
@pytest.mark.timeout(400)  # on a busy machine, analyses at the end take minutes
@pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc")
def test_nothing_grows_sticks_or_differs_while_everything_changes(tmp_path: Path) -> None:
    found = soak(tmp_path, SECONDS)
    assert found.problems == []
    assert found.grown() == []
    assert found.reports > 0
    assert len(found.changes) > 5
    assert found.answers["report 200"] > 0
