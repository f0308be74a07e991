"""What is said of every recording, compared with two tables: see README.md."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

import pytest

from tb_gpudiag.trace.files.find import find_traces
from tests.conftest import REPOSITORY, SHARED_TRACES
from tests.golden.table import Table, answer
from tests.real_traces import FILES, real_report
from tests.simulator.diagnosed import simulated_report
from tests.simulator.scenarios import different_scenarios

OWN, SHARED = Table("recordings.tsv"), Table("shared_recordings.tsv")
SIMULATED = {f"simulator/{name}": name for name in different_scenarios()}


def _named(paths: Iterable[str]) -> dict[str, str]:
    """Return path -> a name without time and machine: the folder, with the file's first word where the words
    differ, and a number where they do not."""
    names: dict[str, str] = {}
    for folder, inside in groupby(sorted(paths), os.path.dirname):
        words = {path: Path(path).name.split(".")[0] for path in inside}
        for path, word in words.items():
            name = folder if len(set(words.values())) == 1 else f"{folder}/{word}"
            same = [other for other in words if words[other] == word]
            names[path] = f"{name} {same.index(path) + 1}" if len(same) > 1 else name
    return names


def _found(root: Path, *folders: str) -> list[str]:
    """Return the files to diagnose in folders of a root, as paths below it."""
    files = [file.path for folder in folders for file in find_traces(str(root / folder)).files]
    return [Path(path).relative_to(root).as_posix() for path in files]


RECORDED = _named(
    _found(REPOSITORY, "demo/recorded", "tb_gpudiag/demo_log/recorded_on_a_cpu", "tests/truth/gpu/recorded")
)
TRACES = _named(FILES)
# Those of `hostile` are about limits, not about what is said.
OTHERS = _named(_found(SHARED_TRACES.parent, "kernels", "nsys", "reports", "snapshots"))


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
