from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.s3.server import is_installed
from tests.soak.soak import soak
from tests.soak.team import soak_team
from tests.soak.training import soak_training

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc"),
]


def test_nothing_grows_sticks_or_differs_while_everything_changes(tmp_path: Path) -> None:
    found = soak(tmp_path, seconds=1.5, small=True)
    assert found.problems == []
    assert found.grown() == []
    assert found.reports > 0
    assert len(found.changes) > 5
    assert not is_installed() or any(change.startswith("network_") for change in found.changes)
    assert found.answers["report 200"] > 0


def test_a_team_on_one_shared_cache_gets_the_answers_of_a_command_alone(tmp_path: Path) -> None:
    found = soak_team(tmp_path, seconds=1, commands=1, small=True)
    assert found.problems == []
    assert found.changes["commands"] == 1
    assert found.reports > 0


def test_a_training_goes_on_whatever_happens_to_its_helper_and_its_files(tmp_path: Path) -> None:
    found = soak_training(tmp_path, seconds=1.5, recordings=10, small=True)
    assert found.problems == []
    assert found.changes["recordings"] > 3
    assert found.changes["reports"] > 0
