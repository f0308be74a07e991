"""The compiled way to nest spans and NumPy's find the same. Skipped if it is not compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpudiag.facts.core import nesting
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.threads import HostTree
from tb_gpudiag.trace.events import Events, Thread
from tb_gpudiag.vocabulary.recorded import Category

pytestmark = pytest.mark.skipif(not nesting.available(), reason="nesting is not compiled")

CATEGORIES = [Category.PYTHON_FUNCTION, Category.CPU_OP, Category.USER_ANNOTATION, Category.KERNEL]
NAMES = ["forward", "aten::mm", "torch/profiler/profiler.py(1): step"]

SPANS = st.lists(
    st.tuples(
        st.integers(0, 30), st.integers(0, 20), st.integers(0, 2), st.integers(0, 3), st.integers(0, 2)
    ),
    max_size=40,
)
"""Start, duration, thread, category and name of each: many cross, start together or are empty."""


def events_of(spans: list[tuple[int, ...]], unit_ns: int) -> Events:
    start, duration, thread, kind, name = np.array(sorted(spans), np.int64).reshape(-1, 5).T
    return Events.of_spans(
        np.array([CATEGORIES[k] for k in kind], np.uint8),
        name.astype(np.int32),
        np.ascontiguousarray(start) * unit_ns,
        duration * unit_ns,
        thread.astype(np.int32),
        NAMES,
        [Thread("1", str(tid)) for tid in range(3)],
    )


def assert_both_ways(find: Callable[[], list[Any]]) -> None:
    compiled = find()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "_nesting", None)
        plain = find()
    assert len(compiled) == len(plain)
    for one, other in zip(compiled, plain, strict=True):
        np.testing.assert_array_equal(one, other)


@given(SPANS, st.sampled_from([1, 10_000, 1 << 56]), st.lists(st.integers(-1, 5), min_size=40, max_size=40))
def test_both_ways_agree(spans: list[tuple[int, ...]], unit_ns: int, values: list[int]) -> None:
    events = events_of(spans, unit_ns)
    own = np.array(values[: len(events)], np.int64)

    def find() -> list[Any]:
        tree = HostTree(events)
        chosen = own > 2
        found = [tree.parent, tree.depth, tree.end_ns, tree.start_ns]
        found += [tree.nearest(own), tree.nearest_of(chosen), tree.least(own.copy()), tree.outermost(chosen)]
        found += [tree.under(chosen), tree.any_below(chosen), tree.count_around(chosen)]
        for activities in (tree.activities(), Host(events).activities):
            for thread, one in activities.items():
                found += [thread, one.start_ns, one.end_ns, one.event]
        return found

    assert_both_ways(find)
