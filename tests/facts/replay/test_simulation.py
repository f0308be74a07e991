"""The compiled replay and NumPy's give the same times. Skipped if it is not compiled."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.replay import simulation
from tb_gpudiag.facts.replay.model import Calls, Streams, StreamWork

pytestmark = pytest.mark.skipif(not simulation.available(), reason="the replay is not compiled")

Column = Callable[[int, int, int], Int64]


def model(draw: Column, calls: int, work: int, streams: int) -> tuple[Calls, Streams]:
    """Build any line of calls with any work, also such as could not have been recorded.

    draw: makes a column of a length, with values from least to most.
    """
    start = np.cumsum(draw(calls, -5, 20))
    call = np.sort(draw(work, 0, max(calls - 1, 0)))
    number = draw(work, 0, streams - 1)
    other = draw(work, NONE, max(work - 1, 0))
    other = np.where(number[other] == number, NONE, other) if work else other
    target = draw(calls, NONE, work - 1)
    line = Calls(
        *(np.full(calls, NONE, np.int64), start, start + draw(calls, 0, 20), start, start),
        *(draw(calls, -5, 20), draw(calls, 0, 20), np.where(draw(calls, 0, 3) == 0, target, NONE)),
        *(draw(calls, NONE, work - 1), draw(calls, NONE, max(calls - 1, 0))),
    )
    each = [StreamWork(own, call[own]) for own in (np.flatnonzero(number == one) for one in range(streams))]
    handshake = draw(work, 0, 9)
    lengths = (draw(work, 0, 30), draw(work, 0, 20), draw(work, 0, 1) > 0, draw(work, -2, 9))
    return line, Streams(call, *lengths, np.where(draw(work, 0, 2) == 0, other, NONE), handshake, each)


@given(
    st.integers(0, 2**32),
    st.integers(0, 30),
    st.integers(0, 40),
    st.integers(1, 4),
)
def test_both_ways_agree(seed: int, calls: int, work: int, streams: int) -> None:
    random = np.random.default_rng(seed)
    work = work if calls else 0
    line, gpu = model(lambda n, least, most: random.integers(least, most + 1, n), calls, work, streams)
    compiled = simulation.simulate(line, gpu, line.between_ns, line.inside_ns, line.target)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulation, "_simulation", None)
        plain = simulation.simulate(line, gpu, line.between_ns, line.inside_ns, line.target)
    for one, other in zip(compiled, plain, strict=True):
        assert one.tolist() == other.tolist()
