"""Nesting and innermost activities, compared with a walk over every instant."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.core.threads import HostTree
from tb_gpudiag.trace.events import Events, Thread
from tb_gpudiag.vocabulary.recorded import Category

LIMIT = 30
spans = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, LIMIT), st.integers(0, LIMIT)), min_size=0, max_size=14
)


def events_of(rows: list[tuple[int, int, int]], category: int = Category.CPU_OP) -> Events:
    """Make events of (thread, start, duration)."""
    rows = sorted(rows, key=lambda row: row[1])
    n = len(rows)
    return replace(
        Events.blank(n),
        category=np.full(n, category, np.uint8),
        name=np.arange(n, dtype=np.int32),
        start_ns=np.array([r[1] for r in rows], np.int64),
        duration_ns=np.array([r[2] for r in rows], np.int64),
        thread=np.array([r[0] for r in rows], np.int32),
        names=[f"op {i}" for i in range(n)],
        threads=[Thread("1", "1"), Thread("1", "2")],
    )


def nested(rows: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Keep only the spans that cross no earlier one, as in a correct trace."""
    kept: list[tuple[int, int, int]] = []
    for thread, start, duration in rows:
        end = start + duration
        crosses = any(
            t == thread and duration and d and (s < start < s + d < end or start < s < end < s + d)
            for t, s, d in kept
        )
        if not crosses:
            kept.append((thread, start, duration))
    return kept


MARK, FRAME, OPERATOR = Category.USER_ANNOTATION, Category.PYTHON_FUNCTION, Category.CPU_OP


def tree_of(*rows: tuple[Category, int, int]) -> HostTree:
    """Nest spans on one thread: (category, start, end) in µs, in order of start."""
    events = events_of([(0, start * 1000, (end - start) * 1000) for _, start, end in rows])
    return HostTree(replace(events, category=np.array([kind for kind, _, _ in rows], np.uint8)))


def entered_us(tree: HostTree) -> list[int]:
    return [int(at) // 1000 for at in tree.start_ns]


def test_a_mark_that_python_sets_encloses_what_follows_the_call_that_set_it() -> None:
    tree = tree_of(
        (FRAME, 0, 200),  # train
        (FRAME, 10, 20),  # __enter__
        (FRAME, 12, 18),  # what it calls
        (MARK, 15, 100),
        (FRAME, 30, 60),
        (OPERATOR, 40, 50),
        (FRAME, 95, 105),  # __exit__
        (FRAME, 120, 130),
    )
    assert tree.parent.tolist() == [NONE, 0, 1, 0, 3, 4, 3, 0]
    assert entered_us(tree) == [0, 10, 12, 20, 30, 40, 95, 120]
    innermost = tree.activities()[0]
    between = (innermost.start_ns >= 10_000) & (innermost.end_ns <= 30_000)
    assert innermost.event[between].tolist() == [1, 2, 1, 3]


def test_a_mark_within_a_mark_has_calls_of_its_own() -> None:
    tree = tree_of((FRAME, 0, 10), (MARK, 5, 100), (FRAME, 20, 30), (MARK, 25, 80), (OPERATOR, 40, 50))
    assert tree.parent.tolist() == [NONE, NONE, 1, 1, 3]


def test_a_mark_that_no_call_sets_keeps_its_start() -> None:
    tree = tree_of((FRAME, 0, 100), (MARK, 5, 50), (OPERATOR, 5, 40), (FRAME, 45, 60))
    assert tree.parent.tolist() == [NONE, 0, 1, 1]
    assert entered_us(tree) == [0, 5, 5, 45]


def test_a_call_ends_one_mark_and_sets_the_next() -> None:
    """prof.step() does this."""
    tree = tree_of(
        (FRAME, 0, 90),  # train
        (FRAME, 10, 15),  # step
        (MARK, 13, 42),
        (FRAME, 20, 25),
        (FRAME, 40, 50),  # step
        (FRAME, 41, 43),  # __exit__
        (FRAME, 45, 47),  # __enter__
        (MARK, 46, 80),
        (FRAME, 60, 70),
    )
    assert tree.parent[[2, 3, 4, 7, 8]].tolist() == [0, 2, 2, 0, 7]
    assert [entered_us(tree)[mark] for mark in (2, 7)] == [15, 50]


def test_a_mark_that_ends_with_the_call_around_it_stays_in_it() -> None:
    """With timestamps cut to microseconds, a mark that ends before its call may seem to end after it."""
    tree = tree_of((FRAME, 0, 100), (MARK, 10, 101), (OPERATOR, 20, 90))
    assert tree.parent.tolist() == [NONE, 0, 1]
    assert entered_us(tree) == [0, 10, 20]


def test_a_call_that_another_clock_puts_before_its_operator_is_inside_it() -> None:
    """The driver's calls are timed by another clock than operators: the operator is no part of a call."""
    call = Category.RUNTIME
    late = tree_of((OPERATOR, 0, 1000), (call, 97, 900), (OPERATOR, 100, 910))
    assert late.parent.tolist() == [NONE, 2, 0]
    assert [tree_of((call, 97, 900), (OPERATOR, at, 910)).parent[0] for at in (97, 100, 120)] == [1, 1, NONE]


@given(spans)
def test_parents_of_nested_spans_are_the_smallest_that_enclose(rows: list[tuple[int, int, int]]) -> None:
    events = events_of(nested(rows))
    tree = HostTree(events)
    start, end, length = events.start_ns, events.end_ns, events.duration_ns
    for i in range(len(events)):
        parent = int(tree.parent[i])
        if not length[i]:
            assert tree.depth[i] == NONE
            continue
        around = [
            j
            for j in range(len(events))
            if j != i
            and events.thread[j] == events.thread[i]
            and start[j] <= start[i]
            and end[j] >= end[i]
            and length[j] > length[i]
        ]
        smallest = min((int(length[j]) for j in around), default=None)
        if parent == NONE:
            assert smallest is None
        elif length[parent] > length[i]:
            assert length[parent] == smallest
        else:  # two spans of the same extent: one is put inside the other
            assert (start[parent], end[parent]) == (start[i], end[i])


@given(spans)
def test_every_instant_has_one_innermost_span(rows: list[tuple[int, int, int]]) -> None:
    events = events_of(nested(rows))
    for thread, activity in HostTree(events).activities().items():
        assert (activity.start_ns[1:] == activity.end_ns[:-1]).all()
        assert (activity.end_ns > activity.start_ns).all()
        own = [i for i in range(len(events)) if events.thread[i] == thread and events.duration_ns[i]]
        for begin, stop, found in zip(activity.start_ns, activity.end_ns, activity.event, strict=True):
            length = int(events.duration_ns[found]) if found != NONE else None
            assert {shortest_at(events, own, at) for at in range(begin, stop)} == {length}


def shortest_at(events: Events, own: list[int], at: int) -> int | None:
    """Return the duration of the shortest of these events that runs at this instant; None without one."""
    running = [i for i in own if events.start_ns[i] <= at < events.end_ns[i]]
    return min((int(events.duration_ns[i]) for i in running), default=None)


@given(spans)
def test_crossing_spans_lose_no_time(rows: list[tuple[int, int, int]]) -> None:
    events = events_of(rows)
    covered = {
        (int(events.thread[i]), at)
        for i in range(len(events))
        for at in range(events.start_ns[i], events.end_ns[i])
    }
    found = {
        (thread, at)
        for thread, activity in HostTree(events).activities().items()
        for a, b, event in zip(activity.start_ns, activity.end_ns, activity.event, strict=True)
        for at in range(a, b)
        if event != NONE
    }
    assert found == covered


@given(spans, st.integers(0, 13))
def test_under_and_any_below_agree_with_ancestors(rows: list[tuple[int, int, int]], pick: int) -> None:
    events = events_of(rows)
    tree = HostTree(events)
    chosen = (np.arange(len(events)) == pick) & (tree.depth >= 0)
    under, above = tree.under(chosen), tree.any_below(chosen)
    for i in range(len(events)):
        if tree.depth[i] == NONE:
            continue
        chain = tree.ancestors(i)
        assert under[i] == (pick in chain)
        assert above[i] == bool(chosen.any() and i != pick and i in tree.ancestors(pick))


def test_a_call_is_inside_an_operator_with_the_same_start_and_end() -> None:
    rows = events_of([(0, 0, 10), (0, 0, 10)])
    for order in ([Category.CPU_OP, Category.RUNTIME], [Category.RUNTIME, Category.CPU_OP]):
        events = replace(rows, category=np.array(order, np.uint8))
        tree = HostTree(events)
        call, operator = order.index(Category.RUNTIME), order.index(Category.CPU_OP)
        assert tree.parent[call] == operator
        assert tree.parent[operator] == NONE
