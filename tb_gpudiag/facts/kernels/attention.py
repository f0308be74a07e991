"""Unfused attention: a softmax between two batched matmuls."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64, summed
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import places_of_each
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.facts.kernels.kernels import Kernels
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.kernel_families import Family
from tb_gpudiag.vocabulary.operators import BATCHED_MATMUL

# Scale, mask, cast, dropout and so on, between the softmax and each matmul.
_MOST_BETWEEN = 8


@dataclass(frozen=True, eq=False)
class UnfusedAttention:
    """Unfused attention on one device over the step window."""

    softmax: Int64  # events: one for each time that attention ran, forward or backward
    matmuls: Bool  # mask over Kernels, shape (k,): the two around each softmax
    between: Bool  # mask over Kernels, shape (k,): from one matmul to the other; fusing removes them


def unfused_attention(kernels: Kernels, host: Host) -> UnfusedAttention:
    """Find unfused attention.

    Only matmuls that operators for batches launched count: a classifier's softmax is between others. Kernels
    of a graph have no operator, so none is found there.
    """
    events = host.events
    between = np.zeros(len(kernels.event), np.bool_)
    matmuls = np.zeros(len(kernels.event), np.bool_)
    found = [np.zeros(0, np.int64)]
    batched = _launched_by_batched_matmul(kernels, host)
    for _, own in places_of_each(events.stream[kernels.event]):
        if not kernels.softmax[own].any():
            continue
        matmul = np.flatnonzero(kernels.matrix[own] | (kernels.family[own] == Family.COLLECTIVE))
        at = np.flatnonzero(kernels.softmax[own])
        after = np.searchsorted(matmul, at)
        inner = (after > 0) & (after < len(matmul))
        at, after = at[inner], after[inner]
        first, second = matmul[after - 1], matmul[after]
        fits = batched[own[first]] & batched[own[second]]
        fits &= (at - first <= _MOST_BETWEEN) & (second - at <= _MOST_BETWEEN)
        at, first, second = at[fits], first[fits], second[fits]
        found.append(kernels.event[own[at]])
        matmuls[own[first]] = matmuls[own[second]] = True
        # +1 after each first matmul, -1 at each second one: the sum is above 0 between them.
        marks = summed(first + 1, 1, len(own) + 1)
        np.add.at(marks, second, -1)
        between[own[np.cumsum(marks)[:-1] > 0]] = True
    return UnfusedAttention(np.concatenate(found), matmuls, between)


def _launched_by_batched_matmul(kernels: Kernels, host: Host) -> Bool:
    """Mask of matmul kernels that an operator for batches launched, shape (k,)."""
    operator = kernels.operators(host)
    named = match(host.events, BATCHED_MATMUL)
    return (kernels.family == Family.GEMM) & (operator != NONE) & named[operator]
