"""Fixtures for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
SHARED_TRACES = REPOSITORY.parent / "shared" / "traces"
"""Real traces recorded by others. They are not part of the project: tests that need them skip."""


@pytest.fixture(scope="session")
def shared_traces() -> Path:
    """Folder of real traces. Skips the test if it does not exist."""
    if not SHARED_TRACES.is_dir():
        pytest.skip(f"no real traces at {SHARED_TRACES}")
    return SHARED_TRACES
