"""Tests of facts/: each fact against a second way to compute it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.trace.read import read_trace
from tests.builder import TraceBuilder


def facts_of(story: TraceBuilder) -> Facts:
    """A told trace, written to a file, read back, as facts."""
    with tempfile.TemporaryDirectory() as folder:
        return Facts(read_trace(str(story.write(Path(folder)))))
