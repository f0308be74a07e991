"""Peers: ranks that run the same program. What one of them would do if it did as the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from tb_gpudiag.jobs.what_if_work import COMPUTING, COPYING, JobWork, Pieces, lanes
from tb_gpudiag.trace.events import NONE, Int64

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
    """Return what the pieces take if each rank does as its peers, shape (s, p). Pieces outside of steps stay.

    Shared parts take the mean of the peers until each collective. Other parts take the median of the peers in
    each step: over shorter times, chance decides which of them is late.
    with_self: each rank is among its peers; otherwise it does as the others, and alone as before.
    """
    spent = np.zeros((len(work) + work.members, len(work.part_names)))
    np.add.at(spent, pieces.block, pieces.ns)
    is_shared = np.isin(work.part_names, SHARED)
    ratio, more = np.ones_like(spent), np.zeros_like(spent)
    for some in peers:
        _, step = np.unique(work.step[some.rows[0]], return_inverse=True)
        for parts, unit, usual in (
            (np.flatnonzero(is_shared), _units(work, pieces, some), _mean),
            (np.flatnonzero(~is_shared), step, _lower_median),
        ):
            every = _sums(spent[some.rows], unit)
            own = every[:, :, parts]
            target = usual(own) if with_self else _of_others(own, usual)
            where = (some.rows[:, :, None], parts)
            ratio[where] = np.divide(target, own, out=np.zeros_like(own), where=own > 0)[:, unit]
            # What only the peers do is spread over all that the rank does there.
            whole = np.maximum(every.sum(axis=2, keepdims=True), 1)
            more[where] = (np.where(own > 0, 0, target) / whole)[:, unit]
    lengths = pieces.ns.sum(axis=1, keepdims=True)
    return np.asarray(pieces.ns * ratio[pieces.block] + more[pieces.block] * lengths)


def _units(work: JobWork, pieces: Pieces, peers: Peers) -> Int64:
    """Number the stretches of work that are compared: the one before each of the peers' n collectives, or the
    whole step if they order its collectives differently. Shape (n,)."""
    place = np.zeros(len(work), np.int64)
    ready = np.flatnonzero(pieces.ready != NONE)
    place[pieces.ready[ready]] = ready
    count = peers.rows.shape[1]
    step = work.step[peers.rows[0]]
    swapped = np.append((np.diff(place[peers.rows], axis=1) <= 0).any(axis=0), False)[:count]
    whole = np.isin(step, step[swapped])
    _, unit = np.unique(np.where(whole, count + step, np.arange(count)), return_inverse=True)
    return np.asarray(unit, np.int64)


def _sums(values: Float64, unit: Int64) -> Float64:
    """Sum values of shape (k, n, p) with one unit: shape (k, units, p)."""
    found = np.zeros((len(values), int(unit.max(initial=-1)) + 1, values.shape[2]))
    np.add.at(found, (np.arange(len(values))[:, None], unit), values)
    return found


def _mean(values: Float64) -> Float64:
    """Return the mean along the first axis, for each value. Same shape."""
    return np.broadcast_to(values.mean(axis=0), values.shape)


def _lower_median(values: Float64) -> Float64:
    """Return the median along the first axis, the lower one of two, for each value. Same shape."""
    return np.broadcast_to(np.sort(values, axis=0)[(len(values) - 1) // 2], values.shape)


def _of_others(values: Float64, usual: Callable[[Float64], Float64]) -> Float64:
    """Return the mean or median of the others along the first axis, for each value. Same shape."""
    count = len(values)
    if count == 1:
        return values
    if usual is _mean:
        return np.asarray((values.sum(axis=0) - values) / (count - 1))
    order = np.argsort(values, axis=0, kind="stable")
    ordered = np.take_along_axis(values, order, axis=0)
    middle = (count - 2) // 2
    return np.asarray(np.where(np.argsort(order, axis=0) <= middle, ordered[middle + 1], ordered[middle]))
