"""A command limits the memory of its process. Run in the tests' process, it must not limit other tests."""

from __future__ import annotations

import pytest

from tb_gpudiag.cli import memory


@pytest.fixture(autouse=True)
def unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "limit_memory", lambda *_: False)
