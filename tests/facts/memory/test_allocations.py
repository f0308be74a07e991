"""Allocations and their frees, compared with a dictionary that follows them one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.memory.allocations import pair
from tb_gpudiag.vocabulary.recorded import MemoryAction
from tests.builder import TraceBuilder
from tests.facts import facts_of

ALLOCATE, FREE = MemoryAction.ALLOCATE, MemoryAction.FREE


def paired(events: list[tuple[MemoryAction, int, int]]) -> tuple[list[int], list[int]]:
    """Pair events (action, address, bytes), in order of time: (what freed each, frees of earlier memory)."""
    action, address, size = (np.array(column) for column in zip(*events, strict=True))
    signed = np.where(action == FREE, -size, size).astype(np.int64)
    freed, early = pair(action.astype(np.uint8), address.astype(np.uint64), signed)
    return freed.tolist(), early.tolist()


@st.composite
def consistent_events(draw: st.DrawFn) -> list[tuple[MemoryAction, int, int]]:
    """Draw events of one allocator, some addresses allocated before the start: none is allocated twice at
    once."""
    held: dict[int, int] = {address: 512 * (address % 3 + 1) for address in draw(st.sets(st.integers(1, 6)))}
    events = []
    for address, blocks in draw(
        st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4)), min_size=1, max_size=40)
    ):
        if address in held:
            events.append((FREE, address, held.pop(address)))
        else:
            held[address] = 512 * blocks
            events.append((ALLOCATE, address, held[address]))
    return events


@given(consistent_events())
def test_pairing_equals_a_dictionary(events: list[tuple[MemoryAction, int, int]]) -> None:
    held: dict[int, int] = {}
    freed, early = [NONE] * len(events), []
    for i, (action, address, _) in enumerate(events):
        if action == ALLOCATE:
            held[address] = i
        elif address in held:
            freed[held.pop(address)] = i
        else:
            early.append(i)
    assert paired(events) == (freed, early)


@given(
    st.lists(
        st.tuples(st.sampled_from(MemoryAction), st.integers(0, 3), st.sampled_from([512, 1024])),
        min_size=1,
        max_size=40,
    )
)
def test_an_allocation_always_ends_later_and_at_the_same_address(
    events: list[tuple[MemoryAction, int, int]],
) -> None:
    freed, early = paired(events)
    ends = [end for end in freed if end != NONE and events[end][0] == FREE]
    assert len(set(ends)) == len(ends)
    assert set(ends) | set(early) == {i for i, event in enumerate(events) if event[0] == FREE}
    for i, end in enumerate(freed):
        if events[i][0] != ALLOCATE:
            assert end == NONE
        elif end != NONE:
            assert end > i
            assert events[end][1] == events[i][1]
            assert events[end][0] == ALLOCATE or events[end][2] == events[i][2]


def test_an_address_that_is_allocated_again_had_been_freed() -> None:
    events = [(ALLOCATE, 1, 512), (ALLOCATE, 1, 1024), (FREE, 1, 1024)]
    assert paired(events) == ([1, 2, NONE], [])


def test_two_threads_within_a_clock_tick_are_distinguished() -> None:
    # The second thread's allocation was written before the first one's free of the same address.
    events = [(ALLOCATE, 1, 512), (ALLOCATE, 1, 512), (FREE, 1, 512), (FREE, 1, 512)]
    assert paired(events) == ([3, 2, NONE, NONE], [])


def test_thread_and_time_identify_who_allocates() -> None:
    trace = TraceBuilder()
    main, other = trace.thread(), trace.thread("other")
    main.frame("train.py(12): train", at=0, us=100)
    main.frame("nn.Module: Linear_0", at=10, us=50)
    main.op("aten::linear", at=20, us=30).op("aten::addmm", at=22, us=20).op("aten::empty", at=24, us=5)
    other.op("aten::copy_", at=0, us=100)
    main.alloc(512, at=25)  # by aten::empty for aten::addmm
    main.alloc(512, at=45)
    main.alloc(512, at=70)  # in Python, outside of operators
    other.alloc(512, at=25)
    facts = facts_of(trace)
    (memory,) = facts.memory
    names, own = facts.events.names, memory.allocations

    def name(event: int) -> str:
        return "" if event == NONE else names[facts.events.name[event]]

    assert [name(event) for event in own.operator] == ["aten::addmm", "aten::copy_", "aten::linear", ""]
    assert [name(event) for event in own.module] == ["nn.Module: Linear_0", "", "nn.Module: Linear_0", ""]
    frames = [facts.host.frame(place) for place in own.place]
    assert [frame and frame.line for frame in frames] == [12, None, 12, 12]


def test_in_backward_the_place_is_that_of_the_forward_operator() -> None:
    trace = TraceBuilder()
    main, engine = trace.thread(), trace.thread("autograd")
    main.frame("model.py(7): forward", at=0, us=50).op("aten::mm", at=10, us=20, sequence=3)
    engine.op("MmBackward0", at=100, us=20, sequence=3, forward_thread=main.tid)
    engine.op("aten::mm", at=105, us=10)
    engine.alloc(512, at=110)
    facts = facts_of(trace)
    (memory,) = facts.memory
    frame = facts.host.frame(int(memory.allocations.place[0]))
    assert frame is not None
    assert (frame.file, frame.line) == ("model.py", 7)
