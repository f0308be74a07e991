from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.trace.read import read_trace
from tests.builder import TraceBuilder
from tests.with_each import with_each

STEP_US = 100.0


def before(
    folder: Path,
    *,
    first: int = 3,
    nodes: int | None = None,
    per_step: int = 7,
    every: int = 1,
    held: int = 0,
    mark: str = "ProfilerStep#",
) -> float | None:
    """nodes: that autograd had made before, if it makes any. per_step: that it makes in every so many steps.
    held: what an earlier recording of the process has left of its total."""
    trace = TraceBuilder()
    trace.recording.memory_start[None] = held
    main, other = trace.thread(), trace.thread("other")
    for step in range(12):
        at = step * STEP_US
        main.annotation(f"{mark}{first + step}", at=at, us=STEP_US - 2)
        for number in range(per_step if nodes is not None and step % every == 0 else 0):
            made = (nodes or 0) + step // every * per_step + number
            main.op("aten::mul", at=at + 5 + 2 * number, us=1, sequence=made)
        main.op("aten::clone", at=at + 70, us=5)
        main.alloc(4096, at=at + 72, device=None)
        if nodes is not None:
            other.op("aten::mul", at=at + 30, us=5, sequence=90_000 + step)
    (memory,) = Facts(read_trace(str(trace.write(folder)))).memory
    return memory.steps_before


@with_each(
    ("made", "steps"),
    [
        ({}, 3),
        ({"first": 0}, 0),
        ({"nodes": 21}, 3),
        ({"nodes": 0}, 3),
        ({"nodes": 7_000}, 1_000),  # the profiler was made late
        ({"nodes": 7_000, "per_step": 14}, 500),
        ({"nodes": 700, "every": 3}, 300),  # a step of three trains
        ({"held": 512}, None),
        ({"mark": "Iteration "}, None),
    ],
)
def test_marks_and_nodes_of_graphs_count_the_steps_before(
    made: dict[str, Any], steps: float | None, tmp_path: Path
) -> None:
    found = before(tmp_path, **made)
    assert found is None if steps is None else found == pytest.approx(steps, rel=0.1)
