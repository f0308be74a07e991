"""Pairs: real jobs recorded before and after their fix. Replayed step times next to measured ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.trace.read import read_trace
from tests.conftest import SHARED_TRACES


@dataclass(frozen=True)
class Pair:
    """Two folders of the shared traces, before and after the fix of one rule's finding.

    steady: compare the median step, not the window divided by its steps. Not where a step only launches, and
    the wait is at the end of the window.
    """

    name: str
    before: str
    after: str
    rule: str
    steady: bool
    why: str


PAIRS = (
    Pair(
        "ResNet-50, loader 0 -> 4 workers",
        "v100_resnet50_workers0",
        "v100_resnet50_workers4",
        "GD101",
        True,
        "receiving a batch still takes 1.2 ms per step, and with 4 workers the training thread's Python and "
        "launches take longer; measured is the median: two of the six steps took 164 and 182 ms",
    ),
    Pair(
        "RTX 5080, eager -> one CUDA graph",
        "rtx5080_without_cuda_graph",
        "rtx5080_with_cuda_graph",
        "GD201",
        False,
        "the replay keeps the Python between the launches and each kernel's time; a graph needs no Python, "
        "and in it the same kernels took 8.4 ms instead of 6.1 ms",
    ),
)


@dataclass(frozen=True)
class Compared:
    """ms per step. The prediction is a range: the fix removes part of the host's time, or all of it."""

    pair: Pair
    before_ms: float
    least_ms: float
    most_ms: float
    measured_ms: float


def compared() -> Iterator[Compared]:
    """Compare the pairs whose traces exist."""
    for pair in PAIRS:
        if not all((SHARED_TRACES / name).is_dir() for name in (pair.before, pair.after)):
            continue
        before, after = (_facts(name) for name in (pair.before, pair.after))
        (found,) = (f.finding for f in run_rules(before, RULES).findings if f.rule.id == pair.rule)
        assert found.removable is not None
        steps = len(before.steps) * 1e6
        ends = [
            before.replay.run(change).window_ns / steps
            for change in (found.removable.most, found.removable.least or found.removable.most)
        ]
        yield Compared(
            pair, before.window.duration_ns / steps, min(ends), max(ends), _step_ms(after, pair.steady)
        )


def _step_ms(facts: Facts, steady: bool) -> float:
    assert facts.device is not None
    account = facts.device.account
    lengths = account.end_ns - account.start_ns
    return float(np.median(lengths) if steady else lengths.mean()) / 1e6


def _facts(folder: str) -> Facts:
    return Facts(read_trace(str(next((SHARED_TRACES / folder).iterdir()))))
