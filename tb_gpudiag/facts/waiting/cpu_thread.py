"""What the main thread of a job on the CPU did: two things that look like the work of operators are not, and
one that looks like Python is.

Python that runs inside an operator, such as the `backward` of a function of the user's own, is user code. And
while a collective is under way, the thread waits for it in places that look like work: in autograd's engine,
in Python, in an operator of autograd. Without stacks, user code beside a collective cannot be told from
waiting. With stacks, a kernel that torch.compile wrote is a frame without an operator of its own. And `with`
takes a lock without a frame, and releases it in one.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, marked
from tb_gpudiag.facts.core.causes import BETWEEN_CALLS, Cause, CauseSpans, repaint
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Intervals
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.vocabulary.marks import COMPILED_CODE
from tb_gpudiag.vocabulary.operators import AUTOGRAD_NODE, NODE_SUFFIX, USER_NODE
from tb_gpudiag.vocabulary.recorded import Category
from tb_gpudiag.vocabulary.torch_frames import COMPILED_KERNEL, MESSAGE_WAIT, RELEASE

# A function's node spends microseconds between the operators that it calls.
LEAST_USER_CODE_NS: Final = 1_000_000


def cpu_thread(spans: CauseSpans, host: Host, under_way: Intervals) -> CauseSpans:
    """Return the thread's spans with user code, waiting and compiled kernels marked as such.

    spans: as HostTime finds them. under_way: when a collective was."""
    if not len(spans.start_ns):
        return spans
    in_node, in_function = (marked(_nodes(host, of), spans.event) for of in (AUTOGRAD_NODE, USER_NODE))
    long = spans.end_ns - spans.start_ns >= LEAST_USER_CODE_NS
    cause = np.where(
        in_function & long & (spans.cause == Cause.DISPATCH), np.uint8(Cause.PYTHON), spans.cause
    )
    cause = np.where(marked(_compiled_kernels(host), spans.event), np.uint8(Cause.DISPATCH), cause)
    cause[(cause == Cause.PYTHON) & long & _waits_for_lock(spans, host)] = Cause.WAITING
    spans = spans._replace(cause=cause.astype(np.uint8))
    return repaint(spans, under_way, Cause.COLLECTIVE, _may_wait(spans, host, in_node))


def _waits_for_lock(spans: CauseSpans, host: Host) -> Bool:
    """Mask of the spans of a function that releases a lock, shape (p,), late in which another thread released
    that lock: until then, this thread waited for it."""
    events, tree = host.events, host.tree
    releases = np.flatnonzero(match(events, RELEASE) & (tree.depth >= 0))
    own = np.isin(events.thread[releases], spans.thread)
    functions = tree.parent[releases[own]]
    locks = {events.names[name].rpartition(" ")[2] for name in events.name[releases[own]]}
    shared = np.array([name.rpartition(" ")[2] in locks for name in events.names], np.bool_)
    others = releases[~own]
    released_ns = np.sort(events.start_ns[others[shared[events.name[others]]]])
    last = np.searchsorted(released_ns, spans.end_ns, side="right")
    middle_ns = (spans.start_ns + spans.end_ns) // 2
    return np.isin(spans.event, functions[functions != NONE]) & (
        last > np.searchsorted(released_ns, middle_ns)
    )


def _nodes(host: Host, of: re.Pattern[str]) -> Bool:
    """Mask of the operators that are such nodes of autograd, or functions with a node, shape (n,)."""
    events = host.events
    known = set(events.names)
    function = np.array([name + NODE_SUFFIX in known for name in events.names], np.bool_)
    node = match(events, of)
    if function.any():
        node |= function[events.name]
    return node & (events.category == Category.CPU_OP) & ~match(events, COMPILED_CODE)


def _compiled_kernels(host: Host) -> Bool:
    """Mask of the frames of kernels in compiled code, shape (n,)."""
    kernels = match(host.events, COMPILED_KERNEL)
    if not kernels.any():
        return kernels
    return kernels & host.tree.under(match(host.events, COMPILED_CODE) & (host.tree.depth >= 0))


def _may_wait(spans: CauseSpans, host: Host, in_node: Bool) -> Bool:
    """Mask of the spans in which the thread may wait, shape (p,): outside of operators and user code."""
    events = host.events
    waits = events.category == Category.USER_ANNOTATION
    frame = events.category == Category.PYTHON_FUNCTION
    waits |= frame & (host.engine_wait | match(events, MESSAGE_WAIT))
    at_rest = (spans.event == NONE) | in_node | marked(waits, spans.event)
    return at_rest & np.isin(spans.cause, np.array((*BETWEEN_CALLS, Cause.DISPATCH), np.uint8))
