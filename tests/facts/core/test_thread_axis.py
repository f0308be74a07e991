"""No timestamp overflows, however far apart events are and however many threads there are."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tb_gpudiag.facts.core.threads import HostTree, ThreadAxis
from tb_gpudiag.trace.events import Events, Thread
from tb_gpudiag.trace.trace_parts import EARLIEST_NS, LATEST_NS, LONGEST_NS
from tb_gpudiag.vocabulary.recorded import Category

FURTHEST_NS = LATEST_NS - EARLIEST_NS
KINDS = (Category.CPU_OP, Category.USER_ANNOTATION, Category.PYTHON_FUNCTION)
rows = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.sampled_from([0, 1, 10**9, FURTHEST_NS // 2, FURTHEST_NS]),
        st.integers(0, 12),
        st.one_of(st.integers(1, 12), st.just(LONGEST_NS)),
        st.sampled_from(KINDS),
    ),
    min_size=1,
    max_size=14,
)


@given(rows)
def test_each_thread_alone_gives_the_same_tree(found: list[tuple[int, int, int, int, Category]]) -> None:
    found = sorted(found, key=lambda row: row[1] + row[2])
    count = len(found)
    events = replace(
        Events.blank(count),
        category=np.array([row[4] for row in found], np.uint8),
        name=np.zeros(count, np.int32),
        start_ns=np.array([row[1] + row[2] for row in found], np.int64),
        duration_ns=np.array([row[3] for row in found], np.int64),
        thread=np.array([row[0] for row in found], np.int32),
        names=["x"],
        threads=[Thread("1", str(i)) for i in range(6)],
    )
    tree = HostTree(events)
    assert (tree.start_ns >= events.start_ns).all()
    assert (tree.parent < count).all()
    activities = tree.activities()
    for thread in np.unique(events.thread).tolist():
        own = np.flatnonzero(events.thread == thread)
        # The same thread, all alone, with its time beginning at 0: nothing can overflow.
        columns: dict[str, Any] = {
            field.name: value[own]
            for field in fields(events)
            if isinstance(value := getattr(events, field.name), np.ndarray)
        }
        first = int(events.start_ns[own].min())
        alone = replace(events, **columns)
        alone = replace(alone, start_ns=alone.start_ns - first, thread=np.zeros(len(own), np.int32))
        expected = HostTree(alone)
        assert tree.start_ns[own].tolist() == (expected.start_ns + first).tolist()
        assert tree.depth[own].tolist() == expected.depth.tolist()
        assert (activities[thread].start_ns - first).tolist() == expected.activities()[0].start_ns.tolist()
        assert (activities[thread].end_ns > activities[thread].start_ns).all()


FAR = st.tuples(st.integers(0, 2**31 - 1), st.integers(-(2**63), 2**63 - 1))
NEAR = st.tuples(st.integers(0, 99), st.integers(10**18, 10**18 + 9))


@given(st.lists(FAR, min_size=1) | st.lists(NEAR, min_size=1))
def test_places_are_in_the_order_of_threads_and_times(points: list[tuple[int, int]]) -> None:
    thread = np.array([point[0] for point in points], np.int32)
    time_ns = np.array([point[1] for point in points], np.int64)
    axis = ThreadAxis(time_ns, threads=max(point[0] for point in points) + 1)
    places = axis.places(thread, time_ns)
    assert axis.times(places).tolist() == time_ns.tolist()
    by_place = sorted(range(len(points)), key=lambda i: (int(places[i]), i))
    assert by_place == sorted(range(len(points)), key=lambda i: (points[i], i))
