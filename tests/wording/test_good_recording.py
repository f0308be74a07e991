"""One block for recording a good trace, the same everywhere."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tb_gpudiag.wording.good_recording import RECORDING, RECORDING_FOR_FIGURES
from tests.with_each import with_each

REPOSITORY = Path(__file__).parents[2]

PAGES = {
    "docs/recording.md": RECORDING,
    "docs/tutorial.md": RECORDING,
    "tb_gpudiag/rules/recording/no_stacks.md": RECORDING,
    "tb_gpudiag/rules/recording/no_steps.md": RECORDING,
    "tb_gpudiag/rules/recording/profiler_overhead.md": RECORDING_FOR_FIGURES,
}


@with_each("page", PAGES)
def test_every_page_shows_the_same_block(page: str) -> None:
    assert f"```python\n{PAGES[page]}```" in (REPOSITORY / page).read_text(encoding="utf-8")


def test_the_blocks_are_python_and_differ_in_the_options() -> None:
    for block in (RECORDING, RECORDING_FOR_FIGURES):
        ast.parse(block)
    assert "with_stack" not in RECORDING_FOR_FIGURES


@pytest.mark.slow
def test_explain_prints_it() -> None:
    command = [sys.executable, "-m", "tb_gpudiag", "explain", "GD903"]
    assert RECORDING in subprocess.run(command, capture_output=True, text=True, check=True).stdout
