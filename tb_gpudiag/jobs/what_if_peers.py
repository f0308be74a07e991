"""Peers: ranks that run the same program. What one of them would do if it did as the others."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from tb_gpudiag.jobs.what_if_work import COMPUTING, COPYING, JobWork, Pieces, lanes
from tb_gpudiag.trace.events import NONE, Bool, Int64

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Peers:
    """Ranks that run the same program.

    members: shape (k,). rows: their collectives in a common order of time, shape (k, n).
    """

    members: Int64
    rows: Int64


SHARED: Final = (COMPUTING, COPYING)
"""Parts that somebody has to do: peers share them evenly. What else most peers do not do can be avoided."""


def peers_of(work: JobWork) -> list[Peers]:
    """Group the ranks by the kinds of collectives on each stream, in the steps that all ranks have."""
    inside = np.flatnonzero(work.step != NONE)
    lane = lanes(work)[inside]
    rows = inside[np.lexsort((work.start_ns[inside], lane))]
    rows = rows[np.argsort(work.member[rows], kind="stable")]
    bounds = np.searchsorted(work.member[rows], np.arange(work.members + 1)).tolist()
    programs: dict[bytes, list[int]] = {}
    what = np.stack([lanes(work), work.kind], axis=1)
    for member, (low, high) in enumerate(pairwise(bounds)):
        programs.setdefault(what[rows[low:high]].tobytes(), []).append(member)
    peers = []
    for members in programs.values():
        own = np.stack([rows[bounds[member] : bounds[member + 1]] for member in members])
        in_time = np.argsort((own - own.min(axis=1)[:, None]).mean(axis=0), kind="stable")
        peers.append(Peers(np.array(members), own[:, in_time]))
    return peers


def as_peers(work: JobWork, pieces: Pieces, peers: list[Peers], with_self: bool) -> Float64:
    """Return what the pieces take if each rank does as its peers until its next collective, shape (s, p).

    That is the mean of what is shared, and the median of the rest. In a step in which peers order their
    collectives differently, it is as much as the peers do in the whole step. Pieces outside of steps stay.

    with_self: each is among its peers; otherwise it does as the others, and alone as before.
    """
    spent = np.zeros((len(work) + work.members, len(work.part_names)))
    np.add.at(spent, pieces.block, pieces.ns)
    ratio, more = np.ones_like(spent), np.zeros_like(spent)
    for some in peers:
        unit = _units(work, pieces, some)
        own = np.zeros((len(some.members), int(unit.max(initial=-1)) + 1, spent.shape[1]))
        np.add.at(own, (np.arange(len(own))[:, None], unit), spent[some.rows])
        usual = _usual(own, np.isin(work.part_names, SHARED), with_self)
        ratio[some.rows] = np.divide(usual, own, out=np.zeros_like(own), where=own > 0)[:, unit]
        # What only the peers do is spread over all that the rank does there.
        whole = np.maximum(own.sum(axis=2, keepdims=True), 1)
        more[some.rows] = (np.where(own > 0, 0, usual) / whole)[:, unit]
    lengths = pieces.ns.sum(axis=1, keepdims=True)
    return np.asarray(pieces.ns * ratio[pieces.block] + more[pieces.block] * lengths)


def _units(work: JobWork, pieces: Pieces, peers: Peers) -> Int64:
    """Number what is compared between peers: the work before each of their n collectives, or that of the
    whole step if they order its collectives differently. Shape (n,)."""
    place = np.zeros(len(work), np.int64)
    ready = np.flatnonzero(pieces.ready != NONE)
    place[pieces.ready[ready]] = ready
    count = peers.rows.shape[1]
    step = work.step[peers.rows[0]]
    swapped = np.append((np.diff(place[peers.rows], axis=1) <= 0).any(axis=0), False)[:count]
    whole = np.isin(step, step[swapped])
    return np.asarray(
        np.unique(np.where(whole, count + step, np.arange(count)), return_inverse=True)[1], np.int64
    )


def _usual(own: Float64, shared: Bool, with_self: bool) -> Float64:
    """Return what peers usually take. own: shape (members, units, p), like the result; shared: mask of parts,
    shape (p,)."""
    if with_self:
        return np.broadcast_to(np.where(shared, own.mean(axis=0), _lower_median(own)), own.shape)
    if len(own) == 1:
        return own
    return np.asarray(np.where(shared, (own.sum(axis=0) - own) / (len(own) - 1), _median_of_others(own)))


def _lower_median(values: Float64) -> Float64:
    """Return the median along the first axis, the lower one of two."""
    return np.asarray(np.sort(values, axis=0)[(len(values) - 1) // 2])


def _median_of_others(values: Float64) -> Float64:
    """Return the median of the others along the first axis, the lower one of two, for each value."""
    order = np.argsort(values, axis=0, kind="stable")
    ordered = np.take_along_axis(values, order, axis=0)
    middle = (len(values) - 2) // 2
    return np.asarray(np.where(np.argsort(order, axis=0) <= middle, ordered[middle + 1], ordered[middle]))
