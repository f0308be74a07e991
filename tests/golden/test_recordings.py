"""What is said of every recording, compared with two tables: see README.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.golden.recordings import OTHERS, RECORDED, TRACES
from tests.golden.table import Table, answer
from tests.real_traces import real_report
from tests.simulator.diagnosed import simulated_report
from tests.simulator.scenarios import different_scenarios

OWN, SHARED = Table("recordings.tsv"), Table("shared_recordings.tsv")
SIMULATED = {f"simulator/{name}": name for name in different_scenarios()}


@pytest.mark.slow
@pytest.mark.parametrize("name", SIMULATED)
def test_a_simulated_job(name: str) -> None:
    OWN.compare(name, answer(simulated_report(SIMULATED[name])))


@pytest.mark.slow
@pytest.mark.parametrize("path", RECORDED)
def test_a_recording_of_the_project(path: str) -> None:
    OWN.compare(RECORDED[path], answer(real_report(REPOSITORY / path)))


@pytest.mark.parametrize("path", TRACES)
def test_a_shared_trace(path: str, shared_traces: Path) -> None:
    SHARED.compare(f"traces/{TRACES[path]}", answer(real_report(shared_traces / path)))


@pytest.mark.parametrize("path", OTHERS)
def test_another_shared_recording(path: str, shared_traces: Path) -> None:
    SHARED.compare(OTHERS[path], answer(real_report(shared_traces.parent / path)))


def test_the_table_has_no_recording_that_is_gone() -> None:
    OWN.keep_only({*SIMULATED, *RECORDED.values()})
    assert OWN.names <= {*SIMULATED, *RECORDED.values()}
