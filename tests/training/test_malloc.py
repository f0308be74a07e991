"""What the process has got from glibc's malloc."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tb_gpudiag.training import noting_tensors
from tb_gpudiag.training.noting_tensors import malloc_bytes

MIB = 2**20


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    noting_tensors._reader.cache_clear()
    yield
    noting_tensors._reader.cache_clear()


def test_it_counts_tensors_and_what_is_none(torch: Any) -> None:
    before = malloc_bytes()
    if before is None:
        pytest.skip("tensors are not allocated by a glibc that has mallinfo2")
    kept = [torch.zeros(4 * MIB, dtype=torch.uint8), ctypes.create_string_buffer(4 * MIB)]
    during = malloc_bytes()
    assert during is not None
    assert during - before == pytest.approx(8 * MIB, rel=0.1)
    del kept
    assert malloc_bytes() == pytest.approx(before, abs=MIB)


class _Counting:
    """mallinfo2 of a malloc that is not the one that allocates tensors."""

    restype: Any = None

    def __call__(self) -> Any:
        return SimpleNamespace(uordblks=100, hblkhd=0)


@pytest.mark.parametrize("library", [SimpleNamespace(), SimpleNamespace(mallinfo2=_Counting())])
def test_it_is_unknown_without_glibc_or_with_another_allocator(
    library: Any, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    assert malloc_bytes() is None
