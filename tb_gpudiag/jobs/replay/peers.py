"""Peers: ranks that run the same program. How long a rank would take if it did what its peers do."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Float64, Int64
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.replay.job_work import JobWork, Pieces, lanes


@dataclass(frozen=True, eq=False)
class Peers:
    """Ranks that run the same program.

    members: shape (k,). rows: their collectives in a common time order, shape (k, n).
    """

    members: Int64
    rows: Int64


SHARED: Final = ("computing", "copying")
"""Parts that somebody has to do, so that peers share them evenly. Other parts can be avoided if most peers
do."""


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


@dataclass(frozen=True, eq=False)
class _Compared:
    """What peers spent on some parts, by unit of their work. unit: of each of their n collectives, shape
    (n,). every: what they spent on all parts, shape (k, units, p). usual: what peers usually take."""

    peers: Peers
    parts: Int64
    unit: Int64
    every: Float64
    usual: Callable[[Float64], Float64]


class PeerTimes:
    """How long pieces of work take if ranks do what their peers do.

    Shared parts take the mean of the peers until each collective. Other parts take the median of the peers in
    each step: over shorter times, chance decides which peer is late.
    """

    def __init__(self, work: JobWork, pieces: Pieces, peers: list[Peers]) -> None:
        self._pieces = pieces
        self._shape = (len(work) + work.members, len(work.part_names))
        spent = np.zeros(self._shape)
        np.add.at(spent, pieces.block, pieces.ns)
        is_shared = np.isin(work.part_names, SHARED)
        self._compared = []
        for some in peers:
            _, step = np.unique(work.step[some.rows[0]], return_inverse=True)
            for parts, unit, usual in (
                (np.flatnonzero(is_shared), _units(work, pieces, some), _mean),
                (np.flatnonzero(~is_shared), step.astype(np.int64), _lower_median),
            ):
                # Sum values of shape (k, n, p) by unit: shape (k, units, p).
                values = spent[some.rows]
                every = np.zeros((len(values), int(unit.max(initial=-1)) + 1, values.shape[2]))
                np.add.at(every, (np.arange(len(values))[:, None], unit), values)
                self._compared.append(_Compared(some, parts, unit, every, usual))

    def of(self, changed: frozenset[int] | None) -> Float64:
        """Return the times of the pieces, shape (s, p). Pieces outside of steps stay the same.

        changed: members that do what their other peers do. None: all members do what their peers usually do.
        """
        ratio, more = np.ones(self._shape), np.zeros(self._shape)
        for one in self._compared:
            own = one.every[:, :, one.parts]
            fixed = np.ones(len(own), bool) if changed is None else np.isin(one.peers.members, [*changed])
            models = own if changed is None else own[~fixed]
            if not fixed.any() or not len(models):
                continue
            own, target = own[fixed], one.usual(models)
            where = (one.peers.rows[fixed][:, :, None], one.parts)
            ratio[where] = np.divide(target, own, out=np.zeros_like(own), where=own > 0)[:, one.unit]
            # What only the peers do is spread over everything that the rank does there.
            whole = np.maximum(one.every[fixed].sum(axis=2, keepdims=True), 1)
            more[where] = (np.where(own > 0, 0, target) / whole)[:, one.unit]
        pieces = self._pieces
        lengths = pieces.ns.sum(axis=1, keepdims=True)
        return np.asarray(pieces.ns * ratio[pieces.block] + more[pieces.block] * lengths)


def _units(work: JobWork, pieces: Pieces, peers: Peers) -> Int64:
    """Number the stretches of work that are compared: up to each of the peers' n collectives, or up to the
    last of several that peers order differently. Shape (n,)."""
    place = np.zeros(len(work), np.int64)
    ready = np.flatnonzero(pieces.ready != NONE)
    place[pieces.ready[ready]] = ready
    placed = place[peers.rows]
    until = np.maximum.accumulate(placed, axis=1)[:, :-1]
    after = np.minimum.accumulate(placed[:, ::-1], axis=1)[:, ::-1][:, 1:]
    return np.append(0, np.cumsum((until < after).all(axis=0)))[: placed.shape[1]]


def _mean(values: Float64) -> Float64:
    """Return the mean along the first axis."""
    return np.asarray(values.mean(axis=0))


def _lower_median(values: Float64) -> Float64:
    """Return the median along the first axis, the lower one of two."""
    return np.asarray(np.sort(values, axis=0)[(len(values) - 1) // 2])
