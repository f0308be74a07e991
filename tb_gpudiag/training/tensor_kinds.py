"""Which tensors have a graph of autograd's, and how large these graphs are.

A profiler that records stacks records every call from Python's bytecode: there is none here for each tensor
or node.
"""

from __future__ import annotations

import itertools
import operator
import sys
from collections.abc import Iterable
from typing import Any

from tb_gpudiag.vocabulary.noted import MOST_NODES


def needing_gradients(tensors: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return those that have a graph, and the leaves that need gradients. Of a view that autograd refuses to
    look at, because what it is of was changed in place since, nothing is known."""
    attached, leaves = list[Any](), list[Any]()
    for tensor in itertools.compress(tensors, map(operator.attrgetter("requires_grad"), tensors)):
        try:
            kind = leaves if tensor.is_leaf else attached
            kind += [tensor]
        except RuntimeError:
            pass
    return attached, leaves


def node_kinds(kinds: Iterable[type]) -> set[type]:
    """Return the types of nodes among these, and torch's own ones."""
    torch = sys.modules["torch"]
    own = {kind for kind in vars(torch._C._functions).values() if isinstance(kind, type)}
    return own | {kind for kind in kinds if torch._C._FunctionBase in kind.__mro__}


def graph_nodes(attached: Iterable[Any], others: Iterable[Any]) -> int:
    """Count the nodes of the graphs of these tensors and of other nodes, up to MOST_NODES."""
    new, seen = ({tensor.grad_fn for tensor in attached} | {*others}) - {None}, set[Any]()
    while new and len(seen) < MOST_NODES:
        seen |= new
        new = {node for known in new for node, _ in known.next_functions} - seen - {None}
    return min(len(seen), MOST_NODES)
