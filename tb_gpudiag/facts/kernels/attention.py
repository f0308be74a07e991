"""Attention that was computed in pieces: a softmax between two batched matrix products."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.facts.kernels.kernels import Kernels
from tb_gpudiag.trace.events import NONE, Bool, Int64
from tb_gpudiag.trace.vocabulary.kernel_families import Family
from tb_gpudiag.trace.vocabulary.operators import BATCHED_MATMUL

# Scale, mask, cast, dropout and their like, between the softmax and each product.
_MOST_BETWEEN = 8


@dataclass(frozen=True)
class UnfusedAttention:
    """On one device, over the step window. `between` are the kernels from one product to the other, softmax
    included; fused attention has none of them."""

    softmax: Int64  # events: one for each time that attention ran, forward or backward
    between: Bool  # shape (k,) over Kernels


def unfused_attention(kernels: Kernels, work: Work, host: Host) -> UnfusedAttention:
    """Only products that operators for batches launched: a classifier's softmax has none. Kernels of a graph
    launch have no operator, so none is found there."""
    events = host.events
    between = np.zeros(len(kernels.event), np.bool_)
    found = [np.zeros(0, np.int64)]
    batched = _launched_by_batched_matmul(kernels, work, host)
    for stream in np.unique(events.stream[kernels.event[kernels.softmax]]):
        own = np.flatnonzero(events.stream[kernels.event] == stream)
        product = np.flatnonzero(kernels.matrix[own] | (kernels.family[own] == Family.COLLECTIVE))
        at = np.flatnonzero(kernels.softmax[own])
        after = np.searchsorted(product, at)
        inner = (after > 0) & (after < len(product))
        at, after = at[inner], after[inner]
        first, second = product[after - 1], product[after]
        fits = batched[own[first]] & batched[own[second]]
        fits &= (at - first <= _MOST_BETWEEN) & (second - at <= _MOST_BETWEEN)
        at, first, second = at[fits], first[fits], second[fits]
        found.append(kernels.event[own[at]])
        # +1 behind each first product, -1 at each second one: above 0 lies what is between.
        marks = np.zeros(len(own) + 1, np.int64)
        np.add.at(marks, first + 1, 1)
        np.add.at(marks, second, -1)
        between[own[np.cumsum(marks)[:-1] > 0]] = True
    return UnfusedAttention(np.concatenate(found), between)


def _launched_by_batched_matmul(kernels: Kernels, work: Work, host: Host) -> Bool:
    """Shape (k,)."""
    launch = kernels.launches(work)
    operator = np.where(launch == NONE, NONE, host.operator[launch])
    named = match(host.events, BATCHED_MATMUL)
    found: Bool = (kernels.family == Family.GEMM) & (operator != NONE) & named[operator]
    return found
