"""Tests of facts/: each fact against a second way to compute it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.trace.read import read_trace
from tests.builder import TraceBuilder


def facts_of(trace: TraceBuilder) -> Facts:
    """Write a built trace to a file, read it back, and return its facts."""
    with tempfile.TemporaryDirectory() as folder:
        return Facts(read_trace(str(trace.write(Path(folder)))))
