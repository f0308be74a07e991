"""Host: what each host span means for a GPU that waits: its cause, its operator, its place in the code."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int32, Int64, Numbers, UInt8, mask_of, summed
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.intervals import Window, union
from tb_gpudiag.facts.core.matching import kind_by_name, match, match_some
from tb_gpudiag.facts.core.named_tasks import named_tasks, waker_of
from tb_gpudiag.facts.core.threads import NOTHING, Activity, HostTree, numbers_of
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary import api_calls, marks, operators, torch_frames
from tb_gpudiag.vocabulary.frames import Frame, at_line, is_installed, is_own, place_frame, stack_place
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, HOST_CATEGORIES, Category
from tb_gpudiag.vocabulary.torch_frames import (
    INPUT,
    LOADER,
    PROFILER_FRAME,
    TASK_NAMES,
    WAITS,
    WAKES,
    HostTask,
)

UNDECIDED = np.uint8(255)
"""Cause of an activity that alone says nothing: the thread may be waiting for another one."""


_NO_TASKS = (HostTask.LOADING, HostTask.PROFILING, HostTask.WAKING, HostTask.AVERAGING)
"""The time of these has causes of its own, or is part of what is around it."""

_MOST_WAITING = 8
"""Threads whose waits are explained, those that wait most often."""

_AWAITED = (*INPUT, HostTask.PROCESS, HostTask.PROGRAM, HostTask.SOCKET, HostTask.FILE)
"""What another thread does for the one that waits for it."""


class Host:
    """Arrays over all events, shape (n,), meaningful for host spans."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self.tree = HostTree(events)

    @cached_property
    def _named_tasks(self) -> tuple[Int32, Bool]:
        of_libraries = kind_by_name(self.events, TASK_NAMES.items(), NONE)
        computes = match(self.events, marks.MODULE) | match(self.events, operators.MULTIPLIES)
        communicates = match(self.events, operators.COLLECTIVE)
        trained = self.in_backward | self.engine_wait
        named, own = named_tasks(self.events, self.tree, of_libraries, trained, computes, communicates)
        asks = self.tree.any_below(named == HostTask.SOCKET)  # a file that `makefile` made of one
        return np.where(asks & (named == HostTask.FILE), np.int32(HostTask.SOCKET), named), own

    @property
    def own_task(self) -> Bool:
        """Mask of the user's own functions whose names say their task, shape (n,)."""
        return self._named_tasks[1]

    @cached_property
    def task(self) -> Int32:
        """HostTask of each event: that of the outermost span around it that has one, but a collection of
        garbage is no part of what it interrupts; or NONE, shape (n,). A wait for a thread that itself waits
        for something else is a wait for that. Loading is not a task: see `loader`."""
        call = self.task_call
        kind = np.where(np.isin(self._awaited, np.array(WAITS)), self._awaited, self._named_tasks[0])
        return np.where(call == NONE, NONE, kind[call])

    @cached_property
    def task_call(self) -> Int32:
        """The outermost span of each event's task, or NONE, shape (n,)."""
        named = self._named_tasks[0]
        collects = named == HostTask.GARBAGE
        others = (named != NONE) & ~collects & ~np.isin(named, np.array(_NO_TASKS))
        collection = self.tree.outermost(collects)
        return np.where(collection == NONE, self.tree.outermost(others), collection)

    @cached_property
    def loader(self) -> Bool:
        """Mask of data loading."""
        named, own_name = self._named_tasks
        return self.tree.under((named == HostTask.LOADING) & ~own_name)

    @cached_property
    def own_loader(self) -> Bool:
        """Mask of the user's own functions that fetch batches, and of waits for a thread that makes them."""
        named, own_name = self._named_tasks
        makes = np.isin(self._awaited, np.array(INPUT))
        return self.tree.under(((named == HostTask.LOADING) & own_name) | makes)

    @cached_property
    def _awaited(self) -> Int32:
        """HostTask that the thread that ends a wait mostly does meanwhile, of each wait for a thread; NONE of
        other events and where it mostly does something else, shape (n,)."""
        events, named = self.events, self._named_tasks[0]
        found = np.full(len(events), NONE, np.int32)
        waits = np.flatnonzero((named == HostTask.THREAD) & (self.task_call == np.arange(len(events))))
        task = self.tree.outermost(np.isin(named, np.array(_AWAITED)))
        often = np.bincount(events.thread[waits], minlength=1)
        for thread in np.argsort(-often, kind="stable")[:_MOST_WAITING].tolist():
            own = waits[events.thread[waits] == thread]
            during = union(events.start_ns[own], events.end_ns[own])
            activity = self.activities.get(self.waker_of(own), NOTHING)
            spent_ns = activity.during(during)
            does = np.where(activity.event == NONE, NONE, task[activity.event])
            total = summed(named[does[does != NONE]], spent_ns[does != NONE], len(HostTask))
            found[own] = np.where(2 * total.max() >= max(1, during.total), total.argmax(), NONE)
        return found

    def waker_of(self, waits: Int64) -> int:
        """Return the thread that ends most of these waits (event indices) of one thread, or NONE."""
        call = self.task_call
        task = np.where(call == NONE, NONE, self._named_tasks[0][call])
        return waker_of(waits, self.events, self.activities, task, match(self.events, WAKES))

    @cached_property
    def loads_in_process(self) -> Bool:
        """Mask of what loads a batch in this process, and of what is around it."""
        own = match(self.events, torch_frames.SINGLE_PROCESS)
        return own | self.tree.any_below(own) | self.own_loader

    def loads(self, window: Window) -> Int64:
        """Find the outermost loader spans that begin in the window: one for each batch that was fetched."""
        events = self.events
        # Other iterators run inside a loader, too: that of temporary names, when workers start.
        of_torch = match(events, torch_frames.BATCH) & match(events, LOADER) & self.loader
        fetch = self.tree.outermost_of(of_torch | self.own_loader)
        begins = window.contains(events.start_ns)
        return np.flatnonzero(fetch & begins).astype(np.int64)

    @cached_property
    def engine_wait(self) -> Bool:
        """Mask of frames that wait for autograd's engine."""
        return match(self.events, torch_frames.ENGINE_WAIT) & self.python

    @cached_property
    def see_through(self) -> Bool:
        """Mask of the profiler's frames that enclose user code.

        These frames did not return within the recording, for example because they were open when it began.
        They are ignored: what is inside them belongs to the spans around them.
        """
        return self.python & match(self.events, PROFILER_FRAME) & self._holds_work

    @cached_property
    def _holds_work(self) -> Bool:
        """Mask of host spans with an operator or a call below them."""
        work = (self.events.category == Category.CPU_OP) | self.events.among(*CALL_CATEGORIES)
        return self.tree.any_below(work & ~match(self.events, PROFILER_FRAME))

    @cached_property
    def of_job(self) -> bool:
        """Whether there is anything that a job does on the host: operators, annotations, or Python outside of
        the profiler's own beginning and end."""
        if self.events.among(Category.CPU_OP, Category.USER_ANNOTATION).any():
            return True
        own = self.python & match(self.events, PROFILER_FRAME)
        return bool((self.python & ~self.tree.under(own) & ~self.tree.any_below(own)).any())

    @cached_property
    def cause(self) -> UInt8:
        """Cause of an idle GPU while this span is the innermost one, shape (n,); UNDECIDED if the span alone
        does not say."""
        events = self.events
        calls = events.where(*CALL_CATEGORIES)

        def called(pattern: re.Pattern[str]) -> Int64:
            return calls[match_some(events, pattern, calls)]

        cause = np.full(len(events), UNDECIDED, np.uint8)
        python = events.category == Category.PYTHON_FUNCTION
        operator = events.category == Category.CPU_OP
        cause[python & ~self.engine_wait] = Cause.PYTHON
        cause[operator] = Cause.DISPATCH
        own = cause != UNDECIDED
        cause[own & np.isin(self.task, np.array(WAITS))] = Cause.WAITING
        cause[own & self.own_loader] = Cause.INPUT
        cause[own & self.tree.under(self._named_tasks[0] == HostTask.AVERAGING)] = Cause.COLLECTIVE
        cause[calls] = Cause.DISPATCH
        cause[called(api_calls.LAUNCH_CALL)] = Cause.LAUNCH
        cause[
            match(events, operators.COLLECTIVE) & (operator | (events.category == Category.USER_ANNOTATION))
        ] = Cause.COLLECTIVE
        profiler = match(events, PROFILER_FRAME) & (python | operator)
        cause[profiler] = Cause.PROFILER
        cause[self.see_through] = UNDECIDED
        # It imports modules as it starts.
        cause[self.tree.under(profiler & python & ~self.see_through) & python] = Cause.PROFILER
        cause[called(api_calls.BLOCKING_CALL)] = Cause.SYNC
        cause[called(api_calls.ALLOCATOR_CALL)] = Cause.ALLOCATOR
        cause[called(api_calls.MODULE_LOAD_CALL)] = Cause.COMPILE
        compiling = self.tree.under(match(events, marks.COMPILE) & (self.tree.depth >= 0))
        cause[compiling] = Cause.COMPILE
        cause[self.loader] = Cause.INPUT
        return cause

    @cached_property
    def operator(self) -> Int32:
        """Event of the innermost operator that is or encloses the event, or NONE. Some recorders write the
        marks of steps as operators."""
        events = self.events
        return self.tree.nearest_of((events.category == Category.CPU_OP) & ~match(events, marks.STEP))

    @cached_property
    def place(self) -> Int32:
        """Number (see `frame`) of the nearest frame that a user could change (frames.place_frame), or NONE.
        In a backward pass, that of the node's forward operator, unless the node itself runs Python."""
        return self._with_forward(self._own_frames[1])

    @cached_property
    def caller(self) -> Int32:
        """Number of the nearest frame outside of installed packages, or NONE; in backward as for `place`."""
        frames, own = self._own_frames
        installed = np.array([*map(is_installed, frames), False], np.bool_)
        return self._with_forward(np.where(installed[own], NONE, own))

    @cached_property
    def python(self) -> Bool:
        """Mask of Python's frames that take time, shape (n,)."""
        return (self.events.category == Category.PYTHON_FUNCTION) & (self.tree.depth >= 0)

    @cached_property
    def own_function(self) -> Bool:
        """Mask of those that are functions of the user's own, shape (n,)."""
        return self.python & np.array([*map(is_own, self.events.names), False], np.bool_)[self.events.name]

    @cached_property
    def library_call(self) -> Int32:
        """Event of the call from the user's own code that each event is in, to a function of a library or of
        Python itself that runs no operators; NONE elsewhere, and where such a function calls back."""
        python, own = self.python, self.own_function
        caller = np.append(self.tree.nearest_of(python), NONE)[self.tree.parent]
        called = python & ~own & np.append(own, False)[caller]
        called &= ~self.tree.any_below(self.events.category == Category.CPU_OP)
        call, users = self.tree.nearest_of(called), self.tree.nearest_of(own)
        inside = (call != NONE) & (self.tree.depth[call] > self.tree.depth[users])
        return np.where(inside, call, NONE).astype(np.int32)

    @cached_property
    def range(self) -> Int32:
        """Event of the nearest `record_function` of the user's own, or NONE."""
        marked = (self.events.category == Category.USER_ANNOTATION) & (self.tree.depth >= 0)
        own = marked & ~match(self.events, marks.NOT_OWN_RANGE)
        return self.tree.nearest_of(own)

    @cached_property
    def module(self) -> Int32:
        """Event of the nearest `nn.Module: X`, or NONE; in backward the forward operator's."""
        return self._with_forward(numbers_of(match(self.events, marks.MODULE)))

    @cached_property
    def forward(self) -> Int32:
        """Forward operator that created the autograd node around each event, or NONE, shape (n,)."""
        events = self.events
        own = (events.category == Category.CPU_OP) & (events.sequence != NONE) & ~self.in_backward
        found = self._with_forward(numbers_of(own))
        return np.where(self.in_backward, found, NONE)

    @cached_property
    def in_backward(self) -> Bool:
        """Mask of the events that autograd's nodes ran, shape (n,)."""
        return self.backward_node != NONE

    def _with_forward(self, own: Int32) -> Int32:
        """Return the nearest of these values around each event, or NONE; around a node of autograd, that
        around the forward operator that created it, where one is known."""
        found, forward = self.tree.nearest(own), self.forward_by_sequence
        nodes, of_forward = self.backward_nodes, own.copy()
        creator = self.creators(nodes, forward[found[forward] != NONE])
        of_forward[nodes] = np.where(creator == NONE, own[nodes], found[creator])
        return self.tree.fill(of_forward)

    def creators(self, node: Numbers, forward: Int64) -> Int64:
        """Return which of the forward operators created each of autograd's nodes, or NONE, shape of `node`.

        forward: in order of sequence number. Nested operators can share a number: the last of them created
        the node."""
        if not len(forward):
            return np.full(len(node), NONE, np.int64)
        numbers, wanted = self.events.sequence[forward], self.events.sequence[node]
        at = np.maximum(np.searchsorted(numbers, wanted, side="right") - 1, 0)
        return np.where(numbers[at] == wanted, forward[at], NONE)

    @cached_property
    def forward_by_sequence(self) -> Int64:
        """Forward operators in order of sequence number."""
        events = self.events
        operators = events.where(Category.CPU_OP)
        numbered = (events.sequence[operators] != NONE) & (events.forward_thread[operators] <= 0)
        forward = operators[numbered]
        return forward[np.argsort(events.sequence[forward], kind="stable")]

    @cached_property
    def backward_node(self) -> Int32:
        """Event of the nearest of `backward_nodes`, or NONE."""
        node = mask_of(self.backward_nodes, len(self.events))
        return self.tree.nearest_of(node)

    @cached_property
    def backward_nodes(self) -> Int64:
        """Operators that autograd ran for nodes of the forward pass."""
        events = self.events
        node = (events.category == Category.CPU_OP) & (events.sequence != NONE) & (events.forward_thread > 0)
        return np.flatnonzero(node).astype(np.int64)

    def name(self, event: int) -> str:
        """Return the event's name; "" for NONE."""
        return "" if event == NONE else self.events.names[self.events.name[event]]

    def names(self, event: Numbers) -> Int64:
        """Return the number of each event's name, NONE for NONE."""
        if not len(self.events):
            return event.astype(np.int64)
        return np.where(event == NONE, NONE, self.events.name[event]).astype(np.int64)

    def purpose(self, table: Iterable[tuple[int, re.Pattern[str]]], otherwise: int) -> tuple[Int64, Int32]:
        """Return what each host span is for, by its name and the names of the spans around it: the lowest
        kind in the table that matches one of them, or `otherwise`; and the outermost span with a kind, or
        NONE. Shape (n,) each."""
        events = self.events
        of_name = kind_by_name(events, table, otherwise)
        if (of_name == otherwise).all():
            return np.full(len(events), otherwise, np.int64), np.full(len(events), NONE, np.int32)
        own = np.where(events.among(*HOST_CATEGORIES), of_name[events.name], otherwise)
        outermost = self.tree.outermost(own != otherwise)
        return self.tree.least(own), outermost

    def frame(self, place: int) -> Frame | None:
        """Return the frame with this number of `place`; None for NONE."""
        return None if place == NONE else self._own_frames[0][place]

    @cached_property
    def _own_frames(self) -> tuple[list[Frame], Int32]:
        """Return the distinct frames, and the index of the frame that each event itself names, or NONE."""
        events = self.events
        numbers: dict[Frame, int] = {}

        def number(frame: Frame | None) -> int:
            return NONE if frame is None else numbers.setdefault(frame, len(numbers))

        own = np.full(len(events), NONE, np.int32)
        python = events.category == Category.PYTHON_FUNCTION
        if python.any():
            of_name = np.array([number(place_frame(name)) for name in events.names], np.int64)
            own[python] = of_name[events.name[python]]
            # The line of such a frame is neither its definition nor a costly line: it called the profiler.
            for event in self._on_stack_at_start:
                frame = place_frame(events.names[events.name[event]])
                own[event] = number(frame.without_line() if frame is not None else None)
        called = np.flatnonzero((events.called_from != NONE) & (own == NONE))
        if len(called):
            # What is no place itself runs at a line of the frame around it.
            around = np.append(self.tree.nearest_of(python), NONE)[self.tree.parent[called]]
            place = np.append(own, NONE)[around]
            pairs, which = np.unique(
                np.stack([place, events.called_from[called]]), axis=1, return_inverse=True
            )
            frames = [*numbers, None]
            lines = [number(at_line(frames[at], events.calling_lines[line])) for at, line in pairs.T.tolist()]
            own[called] = np.array(lines, np.int64)[which.reshape(-1)]
        # Where functions are recorded, these repeat their names.
        stacked = (events.call_stack != NONE) & (not python.any())
        of_stack = np.array([number(stack_place(stack)) for stack in events.call_stacks], np.int64)
        own[stacked] = of_stack[events.call_stack[stacked]]
        return list(numbers), own

    @cached_property
    def _on_stack_at_start(self) -> Int64:
        """Events of the functions that were running when the recording began.

        The recorder writes the stack of each thread first, outermost frame first, with consecutive ids.
        """
        events = self.events
        frames = np.flatnonzero((events.category == Category.PYTHON_FUNCTION) & (events.python_id != NONE))
        frames = frames[np.argsort(events.python_id[frames], kind="stable")]
        first, looked_at = frames[:0], 0
        while len(first) == looked_at < len(frames):  # stacks are short, and recordings are long
            looked_at = min(2 * looked_at + 1_000, len(frames))
            id_, parent = (column[frames[:looked_at]] for column in (events.python_id, events.python_parent))
            follows = np.r_[True, np.diff(id_) == 1]
            inside = (parent == NONE) | (parent == id_ - 1)
            first = frames[: np.logical_and.accumulate(follows & inside).sum()]
        started = match_some(events, PROFILER_FRAME, first).any()
        return first.copy() if started else first[:0].copy()  # a view would keep all frames

    @cached_property
    def activities(self) -> dict[int, Activity]:
        """Thread index -> segments. What encloses a see-through frame takes its place."""
        found = self.tree.activities()
        if not self.see_through.any():
            return found
        owner = self.tree.nearest_of((self.tree.depth >= 0) & ~self.see_through)
        for activity in found.values():
            hidden = np.flatnonzero((activity.event != NONE) & self.see_through[activity.event])
            activity.event[hidden] = owner[activity.event[hidden]]
        return found
