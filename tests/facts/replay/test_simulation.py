"""Simulated times follow the model's rules, whatever the calls and the work, with a compiler and without."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.replay.model import Calls, Streams, order_of
from tb_gpudiag.facts.replay.simulation import NEVER, simulate
from tests.not_compiled import not_compiled

Column = Callable[[int, int, int], Int64]


PLAIN = not_compiled("tb_gpudiag.facts.replay.simulation")


def model(draw: Column, calls: int, work: int, streams: int) -> tuple[Calls, Streams]:
    """Build a line of calls with any work. A call waits for work that it launches itself, or an earlier one;
    work waits for earlier work of another stream.

    draw: makes a column of a length, with values from least to most.
    """
    start = np.cumsum(draw(calls, -5, 20))
    call = np.sort(draw(work, 0, max(calls - 1, 0)))
    number = draw(work, 0, streams - 1)
    other = draw(work, NONE, work - 1)
    other = np.where((other >= np.arange(work)) | (number[other] == number), NONE, other)
    target, full = (draw(calls, NONE, work - 1) for _ in range(2))
    target = np.where((target != NONE) & (call[target] > np.arange(calls)), NONE, target)
    full = np.where((full != NONE) & (call[full] >= np.arange(calls)), NONE, full)
    line = Calls(
        *(np.full(calls, NONE, np.int64), start, start + draw(calls, 0, 20), start, start),
        *(draw(calls, -5, 20), draw(calls, 0, 20), target),
        *(full, np.where(full == NONE, NONE, call[full])),
    )
    lengths = (draw(work, 0, 30), draw(work, 0, 20), draw(work, 0, 1) > 0, draw(work, 0, 9))
    return line, Streams(call, *lengths, other, draw(work, 0, 9), number, order_of(call, number))


@given(st.integers(0, 2**32), st.integers(1, 30), st.integers(1, 40), st.integers(1, 4))
def test_times_follow_the_rules(seed: int, calls: int, work: int, streams: int) -> None:
    random = np.random.default_rng(seed)
    line, gpu = model(lambda n, least, most: random.integers(least, most + 1, n), calls, work, streams)
    for simulated in (simulate, PLAIN.simulate):
        check(line, gpu, *simulated(line, gpu, line.between_ns, line.inside_ns, line.target))


def check(line: Calls, gpu: Streams, begun: Int64, ends: Int64) -> None:
    """Compare the times with the rules."""
    calls = len(begun)
    launched = begun.copy()  # when calls return, as their own work sees it
    before = line.start_ns[0] - line.between_ns[0] if calls else 0
    for one in range(calls):
        assert begun[one] == before + line.between_ns[one]
        target, full = line.target[one], line.full_queue_target[one]
        waits_for_own = target != NONE and gpu.call[target] == one
        before = max([begun[one], *ended(ends, target), *([] if waits_for_own else ended(ends, full))])
        before += line.inside_ns[one]
        launched[one] = begun[one] + line.inside_ns[one] if waits_for_own else before
    for stream in range(int(gpu.stream.max()) + 1):
        before = NEVER
        for one in np.flatnonzero(gpu.stream == stream).tolist():
            issued = (launched if gpu.from_return[one] else begun)[gpu.call[one]] + gpu.latency_ns[one]
            others = [end + gpu.handshake_ns[one] for end in ended(ends, gpu.other[one])]
            before = max([issued, before + gpu.turnaround_ns[one], *others]) + gpu.duration_ns[one]
            assert ends[one] == before


def ended(ends: Int64, work: int) -> list[int]:
    """When a work ended, if there is one."""
    return [] if work == NONE else [int(ends[work])]
