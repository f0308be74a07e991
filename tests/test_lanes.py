"""Which tests a command line selects, in a small project with this one's pytest settings and conftest.py."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
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


NAMED = [
    ["tests/benchmarks"],
    ["tests/benchmarks/test_measure.py::test_measure"],
    ["-m", "benchmark"],
    ["-m", "benchmark or slow"],
]
NOT_SLOW = ["-m", "not slow"]

# Pytest and what conftest.py needs are imported once, and each command line has a process of its own. Of the
# plugins that are installed, it has the one that pyproject.toml has settings of.
PROGRAM = """
import json, os, sys
import hypothesis, pytest, pytest_timeout, tb_gpudiag.service.processes.memory_limit
for arguments in json.loads(sys.argv[1]):
    print("arguments", json.dumps(arguments), flush=True)
    child = os.fork()
    if not child:
        code = pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *arguments])
        sys.stdout.flush()
        os._exit(code)
    os.waitpid(child, 0)
"""

Selected = Callable[..., list[str]]


def of_make_quick() -> list[str]:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    lane = makefile[makefile.index("\nquick:") :].split("\n", maxsplit=3)[2]
    return ["-m", lane.split("-m '")[1].split("'")[0]]


@pytest.fixture(scope="module")
def selected(project: Path) -> Selected:
    """Names of the tests that arguments run, in order, without the parametrized ones' parameters."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([[], NOT_SLOW, of_make_quick(), *NAMED])],
        cwd=project,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "pytest_timeout"},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[tuple[str, ...], list[str]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("arguments "):
            names = found[tuple(json.loads(line.partition(" ")[2]))] = []
        elif "::" in line:
            names.append(line.split("::")[1])
    return lambda *arguments: found[arguments]


def test_a_marker_on_the_command_line_does_not_start_the_benchmarks(selected: Selected) -> None:
    assert "test_measure" not in selected()
    found = set(selected(*NOT_SLOW))
    assert found >= EVERYTHING_ELSE - {"test_slow"}
    assert not found & {"test_slow", "test_measure"}


@pytest.mark.parametrize("arguments", NAMED)
def test_benchmarks_run_where_they_are_named(selected: Selected, arguments: list[str]) -> None:
    assert "test_measure" in selected(*arguments)


def test_make_quick_leaves_out_what_is_slow_and_what_reads_real_traces(selected: Selected) -> None:
    assert set(selected(*of_make_quick())) == {"test_plain", "test_of_the_benchmark"}


def test_tests_on_one_real_trace_run_in_a_row_and_last(selected: Selected) -> None:
    ordered = selected()
    assert ordered[-5:] == [
        "test_real",
        "test_on_one_folder[job_a]",
        "test_on_one_trace[job_a/1.json]",
        "test_on_one_folder[job_b]",
        "test_on_one_trace[job_b/1.json]",
    ]
