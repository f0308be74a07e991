"""Which operators autograd recorded, and whether a backward pass ran what they made."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.vocabulary.recorded import Category
from tb_gpudiag.vocabulary.torch_frames import in_no_grad


def grad_mode(host: Host, operator: int, stack: str) -> bool | None:
    """Autograd numbers the operators that it records. A snapshot shows only decorators that turn it off."""
    events = host.events
    if operator == NONE or not (events.sequence != NONE).any():
        return False if in_no_grad(stack) else None
    chain = [operator, *host.tree.ancestors(operator)]
    return any(events.sequence[i] != NONE for i in chain if events.category[i] == Category.CPU_OP)


def is_leaf(host: Host, operator: int) -> bool:
    """Whether autograd recorded the operator, or one that calls it, and none of them made a node: a later
    operator of the thread has the same number, which rises with each node."""
    events = host.events
    chain = np.array([operator, *host.tree.ancestors(operator)] if operator != NONE else [], np.int64)
    own = chain[(events.category[chain] == Category.CPU_OP) & (events.sequence[chain] != NONE)]
    own = own[events.forward_thread[own] <= 0]
    last = host.creators(own, host.forward_by_sequence)
    later = (events.thread[last] == events.thread[own]) & (events.start_ns[last] >= events.end_ns[own])
    return len(own) > 0 and bool((later & (last != NONE)).all())


def node_ran(host: Host, operators: Int64) -> bool | None:
    """Whether a backward pass ran a node that one of these operators made, or one that it calls or that calls
    it. None if no backward pass was recorded."""
    events, nodes = host.events, host.backward_nodes
    if not len(nodes):
        return None
    known = [i for one in operators[operators != NONE].tolist() for i in (one, *host.tree.ancestors(one))]
    chain = np.array(known, np.int64)
    own = chain[(events.category[chain] == Category.CPU_OP) & (events.forward_thread[chain] <= 0)]
    numbers = events.sequence[own]
    return bool(np.isin(numbers[numbers != NONE], events.sequence[nodes]).any())
