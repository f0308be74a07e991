"""Which tests a command line selects, in a small project with this one's pytest settings and conftest.py."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

pytestmark = pytest.mark.slow

TESTS = """
import pytest

def test_plain(): ...

@pytest.mark.slow
def test_slow(): ...

def test_real(shared_traces): ...

@pytest.mark.parametrize("file", ["job_b/1.json", "job_a/1.json"])
def test_on_one_trace(file): ...

@pytest.mark.parametrize("folder", ["job_b", "job_a"])
def test_on_one_folder(folder): ...
"""
BENCHMARK = """
import pytest

@pytest.mark.benchmark
def test_measure(): ...

def test_of_the_benchmark(): ...
"""
EVERYTHING_ELSE = {"test_plain", "test_slow", "test_real", "test_of_the_benchmark"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work") / "project"
    (folder / "tests" / "benchmarks").mkdir(parents=True)
    shutil.copy(REPOSITORY / "pyproject.toml", folder)
    shutil.copy(REPOSITORY / "tests" / "conftest.py", folder / "tests")
    (folder / "tests" / "test_some.py").write_text(TESTS)
    (folder / "tests" / "benchmarks" / "test_measure.py").write_text(BENCHMARK)
    for job in ("job_a", "job_b"):
        (folder.parent / "shared" / "traces" / job).mkdir(parents=True)
    return folder


def selected(project: Path, *arguments: str) -> list[str]:
    """Names of the tests that these arguments run, in order, without the parametrized ones' parameters."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=project,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        check=False,
    )
    return [line.split("::")[1] for line in done.stdout.splitlines() if "::" in line]


def test_a_marker_on_the_command_line_does_not_start_the_benchmarks(project: Path) -> None:
    assert "test_measure" not in selected(project)
    found = set(selected(project, "-m", "not slow"))
    assert found >= EVERYTHING_ELSE - {"test_slow"}
    assert not found & {"test_slow", "test_measure"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["tests/benchmarks"],
        ["tests/benchmarks/test_measure.py::test_measure"],
        ["-m", "benchmark"],
        ["-m", "benchmark or slow"],
    ],
)
def test_benchmarks_run_where_they_are_named(project: Path, arguments: list[str]) -> None:
    assert "test_measure" in selected(project, *arguments)


def test_make_quick_leaves_out_what_is_slow_and_what_reads_real_traces(project: Path) -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    (lane,) = (line for line in makefile.splitlines() if "pytest" in line and "not slow" in line)
    assert set(selected(project, "-m", lane.split("-m '")[1].split("'")[0])) == {
        "test_plain",
        "test_of_the_benchmark",
    }


def test_tests_on_one_real_trace_run_in_a_row_and_last(project: Path) -> None:
    ordered = selected(project)
    assert ordered[-5:] == [
        "test_real",
        "test_on_one_folder[job_a]",
        "test_on_one_trace[job_a/1.json]",
        "test_on_one_folder[job_b]",
        "test_on_one_trace[job_b/1.json]",
    ]
