"""Work that a step does again, or on more than it uses: the same call with operators on equal shapes,
backward passes over one forward pass, and operators on all rows of a table. Shapes do not show whether the
values are equal, too; autograd's sequence numbers do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from math import prod

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int32, Int64, marked, mask_of, summed
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Window, groups
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.facts.core.operator_inputs import MOST_ELEMENTS, tensor_shapes
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary import marks, operators
from tb_gpudiag.vocabulary.recorded import Category
from tb_gpudiag.vocabulary.torch_frames import BY_CHANCE, ZERO_GRAD_FRAME

# Odd numbers, that spread what they multiply over 64 bits.
_SPREAD = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)


@dataclass(frozen=True, eq=False)
class Repeats:
    """One function or module that is called again and again. again: mask of the events in all of its calls
    but the first of each step, shape (n,). call: one of them, or NONE. per_step: how many of its calls a step
    has, or a recording without steps."""

    again: Bool
    call: int
    per_step: float


def backward_again(host: Host) -> tuple[Bool, Bool]:
    """Two masks of the events in nodes of autograd that run more than once, shape (n,).

    Those that ran before: a pass over a graph that an earlier one kept, which adds to the same gradients. A
    pass that makes a graph of its own, as for second derivatives, is no repeat; nor is one whose gradients an
    optimizer takes or clears before the next, or that only returns them. And those that run again after an
    optimizer stepped and gradients were cleared: autograd goes back through no weights that the step changed,
    so it trains nothing there.
    """
    events, node = host.events, host.backward_nodes
    learns = (events.sequence != NONE) & (events.forward_thread <= 0)
    plain = node[~host.tree.any_below(learns)[node]]
    plain = plain[np.argsort(events.start_ns[plain], kind="stable")]
    columns = [
        column[plain].astype(np.int64) for column in (events.name, events.sequence, events.forward_thread)
    ]
    clears = match(events, marks.ZERO_GRAD) | match(events, ZERO_GRAD_FRAME)
    adds = _adds_gradients(host)
    starts = [np.sort(events.start_ns[some]) for some in (match(events, marks.OPTIMIZER_STEP), clears, adds)]
    before = [np.searchsorted(start_ns, events.start_ns[plain]) for start_ns in starts]
    trained = np.stack(before[:2], axis=1)
    (number, _), (_, first), (_, of_pass) = (groups(*columns, *before[:some]) for some in (0, 2, 3))
    last = np.zeros((len(plain), 2), np.int64)
    np.maximum.at(last, number, trained)
    again = np.setdiff1d(of_pass, first), (trained < last[number]).all(axis=1)
    of_repeats, beyond = (host.tree.under(mask_of(plain[some], len(events))) for some in again)
    return of_repeats, beyond


def used_by_none(host: Host, steps: Steps, optimizer: Bool) -> Bool:
    """Mask of the events in nodes of autograd that lead only to gradients that no optimizer uses, shape (n,).

    In a step's only backward pass, a weight's gradient is new or is added to an older one. Where a pass does
    both, the older ones are no optimizer's: those of a teacher, or of layers that are not trained. Nor are
    those whose shapes no operator of an optimizer has, where it has those of others. Autograd numbers a
    model's nodes without a gap, so what is between them belongs to them.

    optimizer: mask of the events in an optimizer's own steps.
    """
    events, gathers = host.events, _adds_gradients(host)
    ran = host.backward_nodes[~match(events, operators.ACCUMULATES)[host.backward_nodes]]
    nodes = ran[np.argsort(events.start_ns[ran], kind="stable")]
    weights = np.flatnonzero(gathers)
    node = np.searchsorted(events.start_ns[nodes], events.start_ns[weights]) - 1
    weights, fed_by = weights[node >= 0], events.sequence[nodes[node[node >= 0]]]
    known, taken = _by_shapes(events, np.unique(events.shapes[optimizer]))
    left = known & ~taken & bool(taken.any())
    older = host.tree.any_below(match(events, operators.ADDS))[weights] | left[events.shapes[weights]]
    # The forward pass is between two backward passes.
    forward = (events.sequence != NONE) & (events.forward_thread <= 0) & ~host.in_backward & ~gathers
    begins_ns = np.sort(events.start_ns[forward])
    of_node, of_weight = (np.searchsorted(begins_ns, events.start_ns[some]) for some in (nodes, weights))
    passes = len(np.unique(of_weight))
    least, most = np.full((2, len(begins_ns) + 1), [[np.iinfo(np.int64).max], [NONE]])
    np.minimum.at(least, of_weight[older], fed_by[older])
    np.maximum.at(most, of_weight[older], fed_by[older])
    new = of_weight[~older]
    mixed = (fed_by[~older] >= least[new]) & (fed_by[~older] <= most[new])
    both = np.setdiff1d(np.intersect1d(new, of_weight[older]), new[mixed])
    number, found = (
        events.sequence[nodes],
        np.isin(of_node, both) & (passes <= len(steps)) & (2 * len(both) > passes),
    )
    chosen = found & (number >= least[of_node]) & (number <= most[of_node])
    return host.tree.under(mask_of(nodes[chosen], len(events)))


def _by_shapes(events: Events, indices: Int64) -> tuple[Bool, Bool]:
    """Two masks of the distinct inputs, and of none at their end: whether they have a tensor, and whether all
    that they have are of shapes which some of these inputs have."""
    shapes = [[tuple(one) for one in tensor_shapes(text)] for text in events.input_shapes]
    some = {one for index in indices[indices != NONE].tolist() for one in shapes[index]}
    among = [bool(each) and some.issuperset(each) for each in shapes]
    return np.array([*map(bool, shapes), False], np.bool_), np.array([*among, False], np.bool_)


def whole_tables(host: Host) -> Bool:
    """Mask of the events whose inputs are mostly a whole table, shape (n,): one of which others look up fewer
    rows than it has, and which nothing multiplies."""
    events = host.events
    shapes = [[tuple(one) for one in tensor_shapes(text)] for text in events.input_shapes]

    def given_to(names: re.Pattern[str]) -> list[list[tuple[int, ...]]]:
        index = np.unique(events.shapes[match(events, names) & (events.shapes != NONE)])
        return [shapes[each] for each in index.tolist()]

    looked_up = (pairwise(each[:2]) for each in given_to(operators.LOOKS_UP))
    of_few = [table for pairs in looked_up for table, rows in pairs if prod(rows) < table[0]]
    tables = set(of_few).difference(*given_to(operators.MULTIPLIES))
    mostly = [2 * sum(map(prod, tables.intersection(each))) > sum(map(prod, {*each})) for each in shapes]
    return marked(np.array(mostly, np.bool_), events.shapes)


def on_tables(host: Host) -> Bool:
    """Mask of the events in operators of the model that compute with a whole table, as dropout on its weight
    does, and in the nodes that autograd made of them, shape (n,)."""
    events = host.events
    made = whole_tables(host) & (events.sequence != NONE) & ~host.in_backward
    made &= ~(match(events, operators.LOOKS_UP) | match(events, operators.COMPUTES_NOTHING))
    return host.tree.under(made) | marked(made, host.forward)


def calls_again(host: Host, steps: Steps) -> Repeats:
    """Find what a step calls from one function with equal work."""
    events = host.events
    return _repeats(host, steps, _work(host, (events.name, events.shapes, events.types)))


def calls_on_more(host: Host, steps: Steps) -> Repeats:
    """Find what a step, or a recording without, calls from one function with the same operators, each time on
    the same amount more: a model that goes over all of a text again for each token that it adds."""
    events = host.events
    texts = events.input_shapes
    sizes = [min(MOST_ELEMENTS, sum(map(prod, tensor_shapes(text)))) for text in texts]
    own = np.append(np.array(sizes, np.int64), 0)[events.shapes] * (events.category == Category.CPU_OP)
    return _repeats(host, steps, _work(host, (events.name,)), host.tree.sum_below(own))


def _repeats(host: Host, steps: Steps, work: Int64, size: Int64 | None = None) -> Repeats:
    """Find the calls with equal work: of modules and the user's own functions. Of what takes at least half of
    the longest time, with its backward pass, that which is called most often: calls of an outer loop may need
    one another. Calls between which a batch begins, or a backward pass that adds to gradients, have each its
    own; one that returns them, as for a derivative, begins nothing.

    work: a number for it, shape (n,), 0 for none. size: what has to grow from call to call, shape (n,)."""
    events, tree = host.events, host.tree
    python, own, loading = host.python, host.own_function, host.loader | host.own_loader
    call = np.flatnonzero(python & ~loading & (own | match(events, marks.MODULE)) & (work != 0))
    step = np.searchsorted(steps.start_ns, events.start_ns[call], side="right")
    loads = host.loads(Window(int(NONE), np.iinfo(np.int64).max))
    begun = np.r_[np.flatnonzero(_adds_gradients(host)), loads]
    since = np.searchsorted(np.sort(events.start_ns[begun]), events.start_ns[call])
    around = np.append(tree.nearest_of(python), NONE)[tree.parent[call]]
    names = (host.names(column) for column in (call, host.module[call], around))
    kind, first = groups(step, since, *names, work[call])
    calls, length_ns = np.bincount(kind), summed(kind, events.duration_ns[call], len(first))
    again_ns = length_ns - events.duration_ns[call[first]]
    # Without steps, equal calls may be one of each step.
    again_ns *= len(steps) > 0 if size is None else _grow(kind, size[call])
    # The same in all steps.
    one, _ = groups(*(host.names(column)[first] for column in (call, around)))
    of_one_ns = summed(one, again_ns, one.max(initial=0) + 1)
    often = np.where(2 * of_one_ns >= of_one_ns.max(initial=0), summed(one, calls, len(of_one_ns)), 0)
    if size is not None:
        often[:] = 0  # what grows, all of its parts do
    some = (one == np.lexsort((of_one_ns, often))[-1]) & (again_ns > 0)
    repeated = np.delete(call, first)[some[np.delete(kind, first)]]
    per_step = float(calls[some].sum() / max(1, len(np.unique(step[first[some]]))))
    one_call = int(np.append(call[first[some]], NONE)[0])
    again = tree.under(mask_of(repeated, len(events)))
    return Repeats(again | marked(again, host.forward), one_call, per_step)


def _grow(kind: Int64, size: Int64) -> Bool:
    """Mask of the kinds with several calls, each of which is larger than the one before by about as much.

    kind, size: of each call in order of time, shape (c,)."""
    order = np.argsort(kind, kind="stable")
    same = np.diff(kind[order]) == 0
    of, more = kind[order][1:][same], np.diff(size[order])[same]
    least, most = np.full((2, kind.max(initial=-1) + 1), [[np.iinfo(np.int64).max], [0]])
    np.minimum.at(least, of, more)
    np.maximum.at(most, of, more)
    return (least > 0) & (most // 2 <= least) & (most > 0)


def _adds_gradients(host: Host) -> Bool:
    """Mask of what adds to a weight's gradient, shape (n,). A pass that returns gradients only names it."""
    return match(host.events, operators.ACCUMULATES) & ~match(host.events, operators.BACKWARD_NODE)


def same_for_items(host: Host, steps: Steps) -> Bool:
    """Mask of the events in the user's function that takes longest of those below what makes an item or a
    batch, whose calls make equally many calls each, some, and draw no random numbers, shape (n,)."""
    events, tree = host.events, host.tree
    mine, around = (
        host.own_function & (host.loader | host.own_loader),
        np.append(tree.nearest_of(host.python), NONE)[tree.parent],
    )
    chance = tree.any_below(match(events, operators.DRAWS) | match(events, BY_CHANCE))
    call = np.flatnonzero(mine & marked(mine, around) & ~chance)
    kind, first = groups(host.names(call), host.names(around[call]))
    inside = tree.sum_below(np.ones(len(events), np.int64))[call]
    _, ways = groups(kind, inside)
    same = (np.bincount(kind[ways], minlength=len(first)) == 1) & (np.bincount(kind) > len(steps))
    total_ns = summed(kind, events.duration_ns[call], len(first)) * same * (inside[first] > 0)
    return tree.under(mask_of(call[total_ns[kind] == total_ns.max(initial=1)], len(events)))


def _work(host: Host, columns: Sequence[Int32]) -> Int64:
    """Return a number for the operators below each host span, as these columns of events tell them apart,
    shape (n,): the same for the same ones in any order; 0 without operators."""
    events = host.events
    mixed = np.zeros(len(events), np.uint64)
    for column, spread in zip(columns, _SPREAD, strict=False):
        mixed = (mixed ^ ((column + np.int64(1)).view(np.uint64) * spread)) * _SPREAD[0]
        mixed ^= mixed >> np.uint64(32)
    mixed[events.category != Category.CPU_OP] = 0
    return host.tree.sum_below(mixed.view(np.int64))
