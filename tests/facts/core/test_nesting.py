"""Nesting finds what a plain loop over brackets finds, however spans cross."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.core.nesting import nest
from tb_gpudiag.facts.core.threads import HostTree
from tb_gpudiag.trace.events import Events, Thread
from tb_gpudiag.vocabulary.recorded import Category

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
    return replace(
        Events.blank(len(start)),
        category=np.array([CATEGORIES[k] for k in kind], np.uint8),
        name=name.astype(np.int32),
        start_ns=np.ascontiguousarray(start) * unit_ns,
        duration_ns=duration * unit_ns,
        thread=thread.astype(np.int32),
        names=NAMES,
        threads=[Thread("1", str(tid)) for tid in range(3)],
    )


class Loop:
    """Nesting of spans in nesting order, bracket by bracket."""

    def __init__(self, starts: list[int], ends: list[int]) -> None:
        self.parents = [NONE] * len(starts)
        self.depth = [0] * len(starts)
        self.closed: list[int] = []  # the spans in the order in which they are closed
        self.last = [len(starts)] * len(starts)
        open_: list[int] = []
        closes = sorted(ends)
        for span, start in enumerate(starts):
            while len(self.closed) < len(closes) and closes[len(self.closed)] <= start:
                self.last[open_[-1]] = span
                self.closed.append(open_.pop())
            self.parents[span], self.depth[span] = (open_ or [NONE])[-1], len(open_)
            open_.append(span)
        self.closed += reversed(open_)


def around(parent: list[int], event: int) -> list[int]:
    """The event and those around it, from the inside."""
    path = []
    while event != NONE:
        path.append(event)
        event = parent[event]
    return path


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 30)), max_size=40, unique_by=lambda s: s[0]))
def test_brackets(spans: list[tuple[int, int]]) -> None:
    starts = sorted(start for start, _ in spans)
    ends = [start + length for start, (_, length) in zip(starts, spans, strict=True)]
    found, loop = nest(np.array(starts, np.int64), np.array(ends, np.int64)), Loop(starts, ends)
    assert found.closes.tolist() == sorted(ends)
    assert found.parents.tolist() == loop.parents
    assert found.depth.tolist() == loop.depth
    assert found.opened_by.tolist() == loop.closed
    assert found.last.tolist() == loop.last


VALUES = st.lists(st.integers(-1, 5), min_size=40, max_size=40)


@given(SPANS, st.sampled_from([1, 10_000, 1 << 56]), VALUES)
def test_values_pass_to_the_spans_inside(
    spans: list[tuple[int, ...]], unit_ns: int, values: list[int]
) -> None:
    tree = HostTree(events_of(spans, unit_ns))
    own = np.array(values[: len(tree.parent)], np.int32)
    above = [[values[e] for e in around(tree.parent.tolist(), event)] for event in range(len(own))]
    assert tree.nearest(own).tolist() == [next((v for v in found if v != NONE), NONE) for found in above]
    assert tree.least(own.copy()).tolist() == [min(found) for found in above]


@given(SPANS, st.sampled_from([1, 10_000, 1 << 56]), VALUES)
def test_what_is_inside_a_chosen_span(spans: list[tuple[int, ...]], unit_ns: int, values: list[int]) -> None:
    tree = HostTree(events_of(spans, unit_ns))
    chosen = (np.array(values[: len(tree.parent)], np.int64) > 2) & (tree.depth >= 0)
    paths = [around(tree.parent.tolist(), event) for event in range(len(chosen))]
    chosen_around = [[e for e in path if chosen[e]] for path in paths]
    assert tree.under(chosen).tolist() == [bool(found) for found in chosen_around]
    assert tree.outermost(chosen).tolist() == [found[-1] if found else NONE for found in chosen_around]


@given(SPANS, st.sampled_from([1, 10_000]))
def test_segments_of_a_thread_have_its_innermost_span(spans: list[tuple[int, ...]], unit_ns: int) -> None:
    tree = HostTree(events_of(spans, unit_ns))
    for thread, found in tree.activities().items():
        own = [e for e in tree.spans.tolist() if tree.events.thread[e] == thread]
        assert found.start_ns[0] == min(tree.start_ns[e] for e in own)
        assert found.end_ns[-1] == max(tree.end_ns[e] for e in own)
        for start, end, event in zip(found.start_ns, found.end_ns, found.event, strict=True):
            inside = [e for e in own if tree.start_ns[e] <= start and end <= tree.end_ns[e]]
            assert start < end
            assert event == max(inside, key=lambda e: tree.depth[e], default=NONE)
