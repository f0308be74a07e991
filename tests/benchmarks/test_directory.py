"""`make bench`: prints what a directory costs on the page and with the command, and compares the two."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.directory import RECORDINGS, line, rows


@pytest.mark.benchmark
@pytest.mark.timeout(1800)
def test_a_directory_costs_the_page_what_it_costs_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = list(rows(tmp_path, RECORDINGS))
    with capsys.disabled():
        print("\n" + "\n".join(line(*row) for row in found))
    least = {name: min(taken.cpu_seconds for of, taken in found if of == name) for name, _ in found}
    assert least["page"] < 1.3 * least["command"]
