"""Bands: the largest allocations over a range, stacked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tb_gpudiag.errors import UsageError
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices import memory_slice
from tb_gpudiag.report.slices.memory_history import prepare_memory
from tb_gpudiag.report.slices.memory_slice import slice_memory_bands
from tb_gpudiag.trace.read import read_trace
from tests.builder import SnapshotBuilder
from tests.with_each import with_each

MIB = 1 << 20


def snapshot() -> SnapshotBuilder:
    """Weights for all of 100 ms, and in each of 10 steps four results of 1 to 4 MiB and a short-lived one."""
    built = SnapshotBuilder()
    built.segment(64 * MIB)
    built.allocate(8 * MIB, at=0, stack=["go.py(3): main"])
    for step in range(10):
        at = 10_000 * step
        kept = [
            built.allocate((i + 1) * MIB, at=at + 100 * i, stack=[f"go.py({5 + i}): run"]) for i in range(4)
        ]
        brief = built.allocate(16 * MIB, at=at + 5_000, stack=["go.py(9): run"])
        built.free(brief, at=at + 5_001)
        for i, address in enumerate(reversed(kept)):
            built.free(address, at=at + 9_000 + 100 * i)
    return built


def bands(
    folder: Path, start_us: float | None = None, end_us: float | None = None, width: int = 64
) -> pb.MemoryBands:
    prepared = prepare_memory(Facts(read_trace(str(snapshot().write(folder)))))
    return slice_memory_bands(prepared, None, start_us, end_us, width)


def heights(found: pb.MemoryBands) -> list[float]:
    """What is allocated in each column: the bands and the rest."""
    whole = np.array(found.rest_bytes)
    for begin, end, size in zip(found.band_from, found.band_to, found.band_bytes, strict=True):
        whole[begin:end] += size
    return list(whole)


@with_each("width", [1, 7, 64, 1024])
def test_bands_and_the_rest_are_what_is_allocated_and_no_peak_is_lost(width: int, tmp_path: Path) -> None:
    found = bands(tmp_path, width=width)
    assert len(found.column_us) == width
    assert max(heights(found)) == (8 + 10 + 16) * MIB
    assert all(size >= 8 * MIB for size in heights(found))
    assert list(found.column_us) == sorted(found.column_us)


def test_a_band_says_where_it_comes_from_and_how_long_it_lives(tmp_path: Path) -> None:
    found = bands(tmp_path, 20_000, 29_999, 100)
    weights = list(found.band_bytes).index(8 * MIB)
    assert (found.band_from[weights], found.band_to[weights]) == (0, 100)
    assert found.sites[found.band_site[weights]].place.line == 3
    largest = list(found.band_bytes).index(4 * MIB)
    assert (found.band_made_us[largest], found.band_freed_us[largest]) == (20_300, 29_000)
    assert found.kinds[found.band_kind[largest]] == "temporary"


def test_the_largest_areas_are_bands_and_the_others_are_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = heights(bands(tmp_path))
    monkeypatch.setattr(memory_slice, "MOST_BANDS", 5)
    found = bands(tmp_path)
    assert len(found.band_bytes) == 5
    assert max(found.band_bytes) == 8 * MIB
    assert found.more_bands > 0
    assert heights(found) == every


def test_without_addresses_there_are_no_bands(tmp_path: Path) -> None:
    prepared = prepare_memory(Facts(read_trace(str(snapshot().write(tmp_path, shape="1.13")))))
    with pytest.raises(UsageError):
        slice_memory_bands(prepared, 5, None, None, 10)
