"""`make bench`: digests of large ranks in two processes, beside single diagnoses, and their reduction."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.ranks import (
    MOST_BYTES,
    MOST_REDUCE_BYTES,
    MOST_TIMES,
    RANKS,
    REDUCED,
    SIZE_BYTES,
    mapped,
    reduced,
    show,
    show_reduced,
)


@pytest.mark.benchmark
@pytest.mark.timeout(1_800)
def test_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = mapped(tmp_path, RANKS, SIZE_BYTES)
    with capsys.disabled():
        print(f"\n{show(found)}")
    assert found.peak_bytes < MOST_BYTES
    assert found.times < MOST_TIMES


@pytest.mark.benchmark
@pytest.mark.timeout(900)
def test_reducing_many_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = reduced(tmp_path)
    with capsys.disabled():
        print(f"\n{show_reduced(found)}")
    assert found.result == REDUCED
    assert found.peak_bytes < MOST_REDUCE_BYTES
