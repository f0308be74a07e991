"""Giving stretches of time another cause keeps every nanosecond, in order."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tb_gpudiag.facts.core.causes import Cause, CauseSpans, repaint
from tb_gpudiag.facts.core.intervals import Intervals

CAUSES = (Cause.PYTHON, Cause.DISPATCH, Cause.COLLECTIVE)
lengths = st.lists(st.integers(0, 5), min_size=1, max_size=8)


@given(st.lists(st.sampled_from(CAUSES), min_size=1, max_size=8), lengths)
def test_time_in_the_intervals_has_the_cause_and_the_rest_keeps_its_own(
    causes: list[Cause], stretches: list[int]
) -> None:
    edges = np.arange(len(causes) + 1) * 4
    zero = np.zeros(len(causes), np.int32)
    spans = CauseSpans(edges[:-1], edges[1:], np.array(causes, np.uint8), zero, zero, zero)
    borders = np.cumsum([1, *[length + 1 for length in stretches]])
    time = Intervals(borders[:-1:2][: len(borders[1::2])], borders[1::2])
    painted = repaint(spans, time, Cause.COLLECTIVE, spans.cause == Cause.PYTHON)

    assert (np.diff(painted.start_ns) >= 0).all()
    found = by_ns(painted)
    for at, cause in by_ns(spans).items():
        inside = bool(((time.start <= at) & (at < time.end)).any())
        assert found.pop(at) == (Cause.COLLECTIVE if inside and cause == Cause.PYTHON else cause)
    assert not found


def by_ns(spans: CauseSpans) -> dict[int, int]:
    """The cause of every nanosecond, each of which has one."""
    found: dict[int, int] = {}
    for start, end, cause in zip(spans.start_ns, spans.end_ns, spans.cause, strict=True):
        for at in range(start, end):
            assert at not in found
            found[at] = int(cause)
    return found
