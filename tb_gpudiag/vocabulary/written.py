"""What tb-gpudiag writes itself into traces and event files: bounds of NotingTensors, and the phases of a
step that a step clock times, in the order of its rows, with the tags of its event files."""

from __future__ import annotations

from typing import Final

MOST_NODES: Final = 50_000
"""The nodes of autograd's graphs are counted up to here: 0.1 s."""

NODES_PER_STEP: Final = 0.5
"""A graph grows if it gets as many nodes per step: the smallest ones, of two or three, may be kept each fifth
step."""


PHASES: Final = ("input", "forward", "backward", "wait", "optimizer", "garbage", "other")
INPUT, FORWARD, BACKWARD, WAIT, OPTIMIZER, GARBAGE, OTHER = range(len(PHASES))

STEP, TOTAL, FIRST_PHASE, CORE = 0, 1, 2, -1
"""Columns of rows and blocks: number of the step, ms of the step, of each phase (NaN where it was not timed),
and, in the helper, what other processes took of it."""

TAGS: Final = tuple(f"gpudiag/clock/{name}_ms" for name in ("step", *PHASES, "core"))
"""`core`: how long the training's main thread could run and had no core, which is part of its phases."""

FULL_LINES: Final = 10_000
"""So many steps have a line each. Then a line is the mean of two steps, after as many lines of four, and so
on: the file grows with the logarithm of the run. TensorBoard shows 1000 points of them."""
