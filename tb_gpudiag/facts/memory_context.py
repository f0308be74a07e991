"""Who allocates: what the thread did at the instant of each memory event."""

from __future__ import annotations

import re
from enum import IntEnum
from functools import cached_property, lru_cache

import numpy as np

from tb_gpudiag.facts import names
from tb_gpudiag.facts.host import Host
from tb_gpudiag.facts.intervals import contains, union
from tb_gpudiag.facts.transfers import Transfers
from tb_gpudiag.trace.events import NONE, Bool, Category, Int64, MemoryEvents, UInt8


class Phase(IntEnum):
    """What part of the job a memory event belongs to."""

    UNKNOWN = 0
    INPUT = 1  # the loader, or a copy from the host
    PARAMETER = 2  # a module is built or moved
    FORWARD = 3  # an operator or a module outside of all others
    BACKWARD = 4
    OPTIMIZER = 5
    ZERO_GRAD = 6

    @property
    def label(self) -> str:
        return "" if self in {Phase.UNKNOWN, Phase.INPUT, Phase.PARAMETER} else self.name.lower()


# Operators that only get memory for the one that called them.
_GETS_MEMORY = re.compile(r"aten::(_?empty\w*|new_empty\w*|resize_\w*|set_|_resize_output_?)")

_OPTIMIZER = re.compile(r"Optimizer\.step#.*|\[pl\]\[.*optimizer_step.*", re.S)
_ZERO_GRAD = re.compile(r"Optimizer\.zero_grad#.*|\[pl\]\[.*optimizer_zero_grad.*", re.S)
_BACKWARD = re.compile(r"autograd::engine::evaluate_function.*", re.S)
# Frames, in traces and in the stacks of snapshots.
_OPTIMIZER_FRAME = re.compile(r"(.*[/\\])?torch[/\\]optim[/\\]\w+\.py\(\d+\): (step|_\w+_step)", re.S)
_ZERO_GRAD_FRAME = re.compile(r"(.*[/\\])?torch[/\\](optim|nn)[/\\].*\(\d+\): zero_grad", re.S)
_MOVES_MODULE = re.compile(
    r"(.*[/\\])?torch[/\\]nn[/\\]modules[/\\]module\.py\(\d+\): (to|cuda|half|float|double|bfloat16|_apply)|"
    r"(.*[/\\])?torch[/\\]nn[/\\]modules[/\\]\w+\.py\(\d+\): (__init__|reset_parameters)",
    re.S,
)
_RUNS_MODULE = re.compile(
    r"nn\.Module: .*|(.*[/\\])?torch[/\\]nn[/\\]modules[/\\]\w+\.py\(\d+\): "
    r"(forward|_call_impl|_wrapped_call_impl)",
    re.S,
)
_BACKWARD_FRAME = re.compile(
    names.ENGINE_WAIT.pattern + r"|.*\(\d+\): torch::autograd::(Engine|generated|python::PythonEngine)::.*",
    re.S,
)
_FRAMES = (
    (Phase.ZERO_GRAD, _ZERO_GRAD_FRAME),
    (Phase.OPTIMIZER, _OPTIMIZER_FRAME),
    (Phase.BACKWARD, _BACKWARD_FRAME),
    (Phase.PARAMETER, _MOVES_MODULE),
    (Phase.INPUT, names.LOADER),
    (Phase.FORWARD, _RUNS_MODULE),
)


class MemoryContext:
    """Arrays over all memory events, shape (m,)."""

    def __init__(self, memory: MemoryEvents, host: Host, transfers: Transfers) -> None:
        self._memory, self._host, self._transfers = memory, host, transfers

    @cached_property
    def around(self) -> Int64:
        """The innermost host span on the event's thread at that instant, or NONE."""
        memory, activities = self._memory, self._host.activities
        # A snapshot does not say on which thread a mark was made, nor who allocated.
        sole = next(iter(activities.values())) if len(activities) == 1 else None
        found = np.full(len(memory), NONE, np.int64)
        order = np.argsort(memory.thread, kind="stable")
        cuts = np.flatnonzero(np.r_[True, np.diff(memory.thread[order]) != 0]) if len(order) else order
        for own in np.split(order, cuts[1:]) if len(order) else []:
            thread = int(memory.thread[own[0]])
            activity = sole if thread == NONE else activities.get(thread)
            if activity is None:
                continue
            time = memory.time_ns[own]
            at = np.searchsorted(activity.start_ns, time, side="right") - 1
            inside = (at >= 0) & (time < activity.end_ns[np.maximum(at, 0)])
            found[own[inside]] = activity.event[at[inside]]
        return found

    def _of(self, per_event: Int64) -> Int64:
        around = self.around
        if not len(per_event):
            return around
        return np.where(around == NONE, NONE, per_event[around])

    @cached_property
    def operator(self) -> Int64:
        """The innermost operator that does more than get memory (aten::empty and the like do it for others),
        else the innermost one; an event, or NONE."""
        host = self._host
        does = (host.events.category == Category.CPU_OP) & ~names.match(host.events, _GETS_MEMORY)
        wanted = self._of(host.tree.nearest(np.where(does, np.arange(len(does)), NONE)))
        return np.where(wanted == NONE, self._of(host.operator), wanted)

    @cached_property
    def module(self) -> Int64:
        """The nearest nn.Module, an event, or NONE; in backward the forward operator's."""
        return self._of(self._host.module)

    @cached_property
    def place(self) -> Int64:
        """A number for Host.frame, or NONE; in backward the forward operator's."""
        return self._of(self._host.place)

    @cached_property
    def phase(self) -> UInt8:
        """Phase of each."""
        memory = self._memory
        found = np.full(len(memory), Phase.UNKNOWN, np.uint8)
        around = self.around
        known = around != NONE
        if known.any():
            found[known] = self._phase_of_span[around[known]]
        found[self._within(_OPTIMIZER)] = Phase.OPTIMIZER
        found[self._within(_ZERO_GRAD)] = Phase.ZERO_GRAD
        if memory.stacks:
            of_stack = np.array([_phase_of_stack(stack) for stack in memory.stacks], np.uint8)
            stacked = (memory.stack != NONE) & (found == Phase.UNKNOWN)
            found[stacked] = of_stack[memory.stack[stacked]]
        return found

    def _within(self, pattern: re.Pattern[str]) -> Bool:
        """Shape (m,): within a mark of this name, on its thread; of a snapshot, on any. By time alone: a mark
        begins inside a Python frame of the profiler and ends outside of it."""
        memory, events = self._memory, self._host.events
        marks = names.match(events, pattern) & (events.category == Category.USER_ANNOTATION)
        found = np.zeros(len(memory), np.bool_)
        for thread in np.unique(events.thread[marks]):
            own = marks & (events.thread == thread)
            spans = union(events.start_ns[own], events.end_ns[own])
            here = (memory.thread == thread) | (memory.thread == NONE)
            found |= here & contains(spans, memory.time_ns)
        return found

    @cached_property
    def _phase_of_span(self) -> UInt8:
        """Shape (n,): the phase of each host span; what stands later here decides."""
        host, events = self._host, self._host.events
        tree, match = host.tree, names.match
        operator = events.category == Category.CPU_OP
        python = events.category == Category.PYTHON_FUNCTION
        phase = np.full(len(events), Phase.UNKNOWN, np.uint8)
        phase[(host.operator != NONE) | tree.under(match(events, names.MODULE) & python)] = Phase.FORWARD
        phase[host.loader | self._takes_from_host] = Phase.INPUT
        for step, spans in (
            (Phase.PARAMETER, match(events, _MOVES_MODULE) & python),
            (Phase.BACKWARD, (match(events, _BACKWARD) & operator) | host.engine_wait),
            (Phase.OPTIMIZER, match(events, _OPTIMIZER_FRAME) & python),
            (Phase.ZERO_GRAD, match(events, _ZERO_GRAD_FRAME) & python),
        ):
            phase[tree.under(spans & (tree.depth >= 0))] = step
        return phase

    @cached_property
    def _takes_from_host(self) -> Bool:
        """Shape (n,): below an operator that copies from the host to the device."""
        host, copies = self._host, self._transfers
        launch = copies.launch[copies.to_device & (copies.launch != NONE)]
        if not len(launch):
            return np.zeros(len(host.events), np.bool_)
        copying = np.zeros(len(host.events), np.bool_)
        copying[launch] = True
        outer = host.tree.any_below(copying) & names.match(host.events, _COPIES)
        return host.tree.under(outer)


_COPIES = re.compile(r"aten::(to|_to_copy|copy_|cuda|_copy_from|pin_memory|_pin_memory)")


def _phase_of_stack(stack: str) -> Phase:
    """Of a snapshot's frames, outermost first: what the innermost one that tells says. What PyTorch allocates
    elsewhere is an operator's of no special part."""
    for line in reversed(stack.split("\n")):
        phase = _phase_of_frame(line)
        if phase != Phase.UNKNOWN:
            return phase
    return Phase.FORWARD if stack else Phase.UNKNOWN


@lru_cache(maxsize=65_536)
def _phase_of_frame(line: str) -> Phase:
    return next((phase for phase, pattern in _FRAMES if pattern.fullmatch(line)), Phase.UNKNOWN)
