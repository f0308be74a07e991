"""What tests of all parts share."""

from __future__ import annotations

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
SHARED_TRACES = REPOSITORY.parent / "shared" / "traces"
"""Real traces, recorded by others; they are no part of the project, and tests skip without them."""


@pytest.fixture(scope="session")
def shared_traces() -> Path:
    """The folder of real traces; skips the test where there is none."""
    if not SHARED_TRACES.is_dir():
        pytest.skip(f"no real traces at {SHARED_TRACES}")
    return SHARED_TRACES
