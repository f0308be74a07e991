"""A command imports what it needs, when it needs it. Modules are counted: how long they take depends on the
machine and on what else it does."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tb_gpudiag.cli.main import main
from tests.report.reports import slow_loader
from tests.with_each import with_each

pytestmark = pytest.mark.slow

COUNTING = """
import atexit, sys
from tb_gpudiag.cli.main import main
names = open(sys.argv.pop(1), "w")
atexit.register(lambda: names.write(" ".join(sys.modules)))
sys.exit(main())
"""


def imported(folder: Path, *arguments: str) -> set[str]:
    """The modules that a command has imported when it ends."""
    subprocess.run(
        [sys.executable, "-c", COUNTING, str(folder / "names"), *arguments],
        env={**os.environ, "GPUDIAG_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": str(folder)},
        capture_output=True,
        check=False,
    )
    return set((folder / "names").read_text().split())


@with_each("arguments", [("--version",), ("diagnose", "no-such-file"), ("diagnose", "--help")])
def test_what_needs_no_trace_imports_no_more_than_the_standard_library(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    found = imported(tmp_path, *arguments)
    assert not found & {"numpy", "pyarrow", "google.protobuf", "rich"}
    assert len(found) <= 180


def test_a_small_trace_is_diagnosed_with_few_modules(tmp_path: Path) -> None:
    (tmp_path / "pandas.py").touch()  # Arrow would import it: it takes longer than all the rest
    found = imported(tmp_path, "diagnose", str(slow_loader().write(tmp_path)))
    assert "pandas" not in found
    assert "tb_gpudiag.report.views.screen" in found, "it was diagnosed"
    assert len(found) <= 780
    assert "rich.console" not in found
    elsewhere = ("jobs.ranks.job_facts", "trace.memory.snapshot", "report.slices.timeline", "trace.nsys.nsys")
    assert not found & {f"tb_gpudiag.{name}" for name in elsewhere}


def test_a_program_that_calls_a_command_keeps_pandas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a process of our own does without it."""
    (tmp_path / "pandas.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["explain", "GD101"]) == 0
    assert importlib.util.find_spec("pandas") is not None
