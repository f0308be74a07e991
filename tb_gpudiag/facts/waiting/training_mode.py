"""What runs as in training, and what does not: layers that behave differently in training (BatchNorm and
dropout), and operators while gradients are switched off, beside the training. Also autograd's anomaly
mode: it checks each gradient for NaN, and keeps the stack of each forward operator."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int32, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import EMPTY, Intervals, distinct, union
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.matching import match, match_some
from tb_gpudiag.facts.core.operator_inputs import input_list
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary import kernel_names, marks, operators, torch_frames
from tb_gpudiag.vocabulary.recorded import Category

_TRAINING = 5  # place of `training` among the inputs of aten::batch_norm


@dataclass(frozen=True, eq=False)
class TrainingMode:
    """batch_norms, dropouts: their calls in training mode, or the kernels of such calls; event indices.
    unknown: how many calls of BatchNorm did not record whether they train."""

    batch_norms: Int64
    dropouts: Int64
    unknown: int


def training_mode(host: Host, work: Work) -> TrainingMode:
    """Find the calls by what operators recorded about their settings, and by the names of kernels."""
    events = host.events
    every_call = match(events, operators.BATCH_NORM)
    calls = np.flatnonzero(every_call & (events.settings != NONE))
    trains = np.array([*map(_is_true, events.input_settings)], np.bool_)
    norms = calls[trains[events.settings[calls]]]
    if not len(norms):
        norms = work.event[match_some(events, kernel_names.BATCH_STATISTICS, work.event)]
    return TrainingMode(
        norms, np.flatnonzero(match(events, operators.ACTIVE_DROPOUT)), int(every_call.sum()) - len(calls)
    )


def _is_true(settings: str) -> bool:
    given = input_list(settings)
    return len(given) > _TRAINING and str(given[_TRAINING]) == "True"


def switched_off_in(host: Host) -> Int32:
    """The outermost function of the user's around each event in which autograd numbers none, or NONE, shape
    (n,). One that it calls, such as a model's forward, may run with gradients elsewhere."""
    off = host.own_function & ~host.tree.any_below(host.events.sequence != NONE)
    return host.tree.nearest_of(host.tree.outermost_of(off))


def without_gradients(host: Host) -> Bool:
    """Mask of the events in such operators, shape (n,): not those of the backward pass, the optimizer, the
    loader and collectives.

    While gradients are on, the profiler notes autograd's sequence number with each operator that autograd
    sees. An operator without one, in which there is none either, ran while they were off, unless it only
    makes a tensor.
    """
    events, tree = host.events, host.tree
    operator = events.category == Category.CPU_OP
    numbered = operator & (events.sequence != NONE)
    forward = numbered & (events.forward_thread <= 0) & ~host.in_backward
    on_thread = np.isin(events.thread, np.unique(events.thread[forward]))
    found = tree.outermost_of(operator) & on_thread & ~numbered & ~tree.any_below(numbered)
    # Optimizers run operators for many tensors, and under torch.compile their steps have no mark.
    others = (
        operators.BACKWARD_NODE,
        operators.COLLECTIVE,
        operators.MAKES_TENSOR,
        operators.FOR_MANY_TENSORS,
        operators.SINGLE_VALUE,  # reading a loss is no work: it waits for what computes the loss
    )
    for pattern in others:
        found &= ~match(events, pattern)
    optimizer = match(events, marks.OPTIMIZER_STEP) | match(events, marks.ZERO_GRAD)
    found &= ~(host.in_backward | host.loader | tree.under(optimizer & (tree.depth >= 0)))
    return tree.under(found)


def before_backward(host: Host, steps: Steps) -> Bool:
    """Mask of the events that end before a backward pass of their step goes on, shape (n,): it may learn from
    what they make."""
    events = host.events
    if not len(steps):
        return np.zeros(len(events), np.bool_)
    step = np.searchsorted(steps.start_ns, events.start_ns, side="right") - 1
    until_ns = np.where(step == NONE, events.start_ns, steps.end_ns[step])
    backward_ns = np.sort(events.start_ns[host.in_backward])
    found: Bool = np.searchsorted(backward_ns, events.end_ns) < np.searchsorted(backward_ns, until_ns)
    return found


def evaluations(host: Host, thread: int, steps: Steps) -> Intervals:
    """When the thread evaluates a model beside the training, with the Python between the operators: it
    multiplies while gradients are off, after the backward pass of its step, or before that of some steps
    only. What most steps do before their backward pass they may learn from."""
    events, tree = host.events, host.tree
    operator = (events.category == Category.CPU_OP) & ~match(events, marks.STEP)
    operator &= (events.thread == thread) & ~host.loader  # an evaluation loads batches of its own
    outer = np.flatnonzero(tree.outermost_of(operator) & ~match(events, operators.MAKES_TENSOR))
    outer = outer[np.argsort(events.start_ns[outer], kind="stable")]
    off = without_gradients(host)[outer] | match(events, operators.SINGLE_VALUE)[outer]
    # The first operators of the next step may run without gradients, too.
    in_step = np.searchsorted(steps.start_ns, events.start_ns[outer], side="right")
    run, pass_ = (np.cumsum(~off) + in_step)[off], outer[off]
    first = np.flatnonzero(np.diff(run, prepend=NONE))
    if not len(first) or not len(steps):
        return EMPTY
    multiplies = match(events, operators.MULTIPLIES)
    forward = np.logical_or.reduceat((multiplies | tree.any_below(multiplies))[pass_], first)
    last = np.r_[first[1:], len(pass_)] - 1
    before = before_backward(host, steps)[pass_[last]] & forward
    begins_ns, backward_ns = events.start_ns[pass_[first]], np.sort(events.start_ns[host.in_backward])
    step = np.searchsorted(steps.start_ns, begins_ns, side="right") - 1
    passed = np.searchsorted(backward_ns, begins_ns) > np.searchsorted(backward_ns, steps.start_ns[step])
    forward &= np.where(before, 2 * len(np.unique(step[before])) <= len(steps), passed)
    return union(begins_ns[forward], events.end_ns[pass_[last[forward]]])


@dataclass(frozen=True, eq=False)
class AnomalyMode:
    """nodes: how many nodes of autograd ran that hand on gradients. checked: how many of them looked for NaN
    right after.

    inside: mask of the events that are part of the mode, shape (n,). spans: their time. forward: time of the
    forward operators that created nodes. Each keeps its stack, which shows only if stacks are recorded.
    """

    nodes: int
    checked: int
    inside: Bool
    spans: Intervals
    forward: Intervals


def anomaly_mode(host: Host) -> AnomalyMode:
    """Find what the mode adds: operators that look for NaN right below a node of autograd, and, with stacks,
    frames that format the stack of a forward operator."""
    events, tree = host.events, host.tree
    node = match(events, operators.BACKWARD_NODE) & ~match(events, operators.ACCUMULATES)
    below = np.zeros(len(events), np.bool_)
    below[tree.parent != NONE] = node[tree.parent[tree.parent != NONE]]
    nan = below & match(events, operators.FINDS_NAN)
    checked = distinct(tree.parent[nan])
    of_checked = np.isin(tree.parent, checked) & match(events, operators.CHECKS_FOR_NAN)
    own = of_checked | match(events, torch_frames.ANOMALY_STACK)
    outermost = tree.outermost_of(own)
    creators = distinct(host.creators(host.backward_nodes, host.forward_by_sequence))
    creators = creators[creators != NONE]
    return AnomalyMode(
        int(node.sum()),
        len(checked),
        tree.under(own),
        union(events.start_ns[outermost], events.end_ns[outermost]),
        union(events.start_ns[creators], events.end_ns[creators]),
    )
