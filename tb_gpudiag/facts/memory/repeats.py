"""Steps of a recording that marks none, inferred from the allocations that every step repeats.

A training loop calls its optimizer and its backward pass once per step, whatever the sizes of its tensors.
Each run of their allocations borders a step. A loop without either, such as inference, calls its model once
per step or repeats some other allocation.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Float64, Int64, UInt8, mask_of
from tb_gpudiag.facts.core.intervals import distinct, groups, numbered
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.facts.memory.floor import NO_PERIODS, Periods
from tb_gpudiag.facts.memory.memory_kinds import Allocations
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.vocabulary.marks import MODULE
from tb_gpudiag.vocabulary.torch_frames import BUILDING_FRAME

FEWEST_BORDERS = 4
"""Three steps, as many as a trend takes."""

MOST_PARTS = 8
"""Most runs of one step: two optimizers, the micro-batches of a step, the passes of a closure."""

MOST_OPTIMIZERS = 3
"""Most updates per step. If more updates repeat together, such as the four steps from one evaluation to the
next, each is a step of its own."""

ALIKE = 0.8
"""Steps allocate at the same places: from one to the next, this share of the places agrees."""

BETTER = 0.02
"""Steps of several runs are more alike than the runs themselves, by at least this much."""

NESTED = 0.9
"""Where a step does more now and then, such as an evaluation, it does what the others do as well: from one
update to the next, the longer stretch has this share of the other's places. Parts of one step have more
places of their own."""

ACCUMULATED = 1.5
"""Backward passes for each time that gradients are freed: with as many or more, they are of micro-batches."""

OUTSIDE_SHARE = 0.9
"""Layers repeat as well, but inside the model. A step also allocates outside of the model: a batch, a result.
In a loop that does not train, this share of the steps must do so."""

WORK = 2
"""A step that does not train computes: it frees at least this many times what it keeps, in bytes or in
number. Weights that are loaded one after the other mostly stay, and so do the activations of micro-batches
whose backward pass is still to come."""

MOST_MICRO_BATCHES = 64
"""Modules that keep results so many times or more are no micro-batches of one step."""

MOST_UNTIL_FULL = 16
"""The same where an allocation failed at the end: what all of them keep together is why."""

TAIL_STEPS = 2
TAIL_SHARE = 0.25
"""A loop goes on until the recording ends. If what follows the last border is more than so many steps, and
more than this share of the loop, the loop was a phase of its own, such as loading."""

MOST_TRIED = 48
"""Most allocation sites that are tried as borders."""

MOST_COMPARED = 400
"""Most steps that are compared with their successor."""

FIRST_COMPARED, FIRST_ALIKE = 32, 0.4
"""Most sites are no border of steps. So many stretches that are less alike than this show it soon."""


def inferred_steps(allocations: Allocations, begin_ns: int, *, has_modules: bool) -> Periods:
    """Return the steps after `begin_ns` that the allocations of one device repeat; none if they do not.

    has_modules: the recording shows which modules allocated. If not, layers look like steps that do not
    train, and only training steps are found. What follows the last border belongs to no step.
    """
    phase = allocations.phase.copy()
    engine = np.zeros(len(phase), np.bool_)
    if allocations.memory.stacks:
        # See phases(): here the engine runs even if nothing else of the backward pass shows.
        engine = np.isin(phase, (Phase.UNKNOWN, Phase.BACKWARD)) & (allocations.stack == NONE)
        phase[engine] = Phase.BACKWARD
    # Weights are made or loaded one after the other, at one place: each would be a step.
    built = (phase == Phase.PARAMETER) | allocations.in_stack(BUILDING_FRAME)
    some = (allocations.time_ns >= begin_ns) & ~allocations.found & ~built
    if some.sum() < 2 * FEWEST_BORDERS:
        return NO_PERIODS
    site, phase, time = _sites(allocations, engine)[some], phase[some], allocations.time_ns[some]
    outside = ~allocations.in_module[some] if has_modules else np.zeros(len(site), np.bool_)
    called = _model_calls(allocations)[some]
    ends = np.where(allocations.freed == NONE, np.iinfo(np.int64).max, allocations.freed_ns)[some]
    size = allocations.bytes[some]
    trains = bool(np.isin(phase, (Phase.OPTIMIZER, Phase.BACKWARD)).any())
    failed = bool(len(allocations.failures))
    most = MOST_UNTIL_FULL if failed else MOST_MICRO_BATCHES
    freed = allocations.free[
        allocations.context.phase[allocations.curve.event[allocations.free]] == Phase.ZERO_GRAD
    ]
    zeroed = np.zeros(len(site) + 1, np.bool_)
    zeroed[np.searchsorted(allocations.position[some], freed)] = True
    for borders in _candidates(site, phase, zeroed[:-1], outside, called):
        at = distinct(time[borders])
        if len(at) >= FEWEST_BORDERS and (trains or _is_loop(at, time, ends, size, outside, most)):
            names = [f"inferred {i + 1}" for i in range(len(at) - 1)]
            return Periods(names, at[:-1], at[1:], "step", inferred=True, trains=trains)
    return NO_PERIODS


def _is_loop(at: Int64, time: Int64, ends: Int64, size: Int64, outside: Bool, most: int) -> bool:
    """Whether steps that do not train are a loop that computes, not weights that are loaded or micro-batches.

    at: times of the borders. time, ends, size, outside: of allocations. most: micro-batches.
    """
    first, last = np.searchsorted(time, at[[0, -1]])
    if len(time) - last > max(TAIL_STEPS / len(at), TAIL_SHARE) * (last - first):
        return False
    # What the next step replaces, such as a cache by a larger one, is not kept.
    after = np.r_[at[2:], at[-1]][np.searchsorted(at[1:-1], time[first:last], side="right")]
    own, keeps = size[first:last], ends[first:last] > after
    kept = int(own[keeps].sum())
    if int(own.sum()) - kept >= WORK * kept or (~keeps).sum() >= WORK * keeps.sum():
        return True
    inside = int(own[keeps & ~outside[first:last]].sum())
    return 2 * inside > kept and len(at) > most


def _sites(allocations: Allocations, engine: Bool) -> Int64:
    """Number the places that allocate, shape (a,): an operator in a function, or a snapshot's stack. The size
    replaces an unknown one. engine: mask of what autograd's engine allocates, one place."""
    name, place = allocations.host.names(allocations.operator), allocations.place
    stack = allocations.site_stack
    known = (place != NONE) | (stack != NONE) | engine
    size = numbered(np.where(known, NONE, allocations.bytes))[1].reshape(-1)
    return groups(name, place, stack, size)[0]


def _model_calls(allocations: Allocations) -> Int64:
    """Number the call of the outermost module that contains each allocation, shape (a,); NONE outside of
    modules, and for modules of other names than the most frequent one. Only traces have these calls."""
    host = allocations.host
    outermost = host.tree.outermost_of(match(host.events, MODULE))
    name, count = np.unique(host.events.name[outermost], return_counts=True)
    if not len(name):
        return np.full(len(allocations), NONE, np.int64)
    outermost &= host.events.name == name[count.argmax()]
    around = allocations.context.around[allocations.event]
    call = host.tree.nearest_of(outermost)[around]
    return np.where(around == NONE, NONE, call)


def _candidates(site: Int64, phase: UInt8, zeroed: Bool, outside: Bool, called: Int64) -> Iterator[Int64]:
    """Yield borders of steps, the most trustworthy first: indices of allocations.

    zeroed: gradients were freed for the next step just before. called: the call of the model that contains
    each, or NONE.
    """
    update, backward = phase == Phase.OPTIMIZER, phase == Phase.BACKWARD
    yield _updates(site, np.flatnonzero(update & ~np.r_[False, update[:-1]]))
    passes = np.flatnonzero(backward & ~np.r_[False, backward[:-1]])
    if zeroed.sum() < FEWEST_BORDERS:
        yield _first_parts(site, passes, MOST_PARTS)
    elif len(passes) >= ACCUMULATED * zeroed.sum():
        yield _updates(site, np.flatnonzero(zeroed))
    else:
        yield _updates(site, passes)
    # A few training steps have many layers: where there are too few steps to see, layers must not become
    # steps.
    if not (update | backward).any():
        inside = np.flatnonzero(called != NONE)
        yield inside[np.sort(np.unique(called[inside], return_index=True)[1])]  # several threads may call
        yield _first_parts(site, np.flatnonzero(~outside & np.r_[True, outside[:-1]]), MOST_PARTS)
        entered = np.flatnonzero(np.r_[True, site[1:] != site[:-1]])
        yield from (entered[borders] for borders in _recurring(site[entered], outside[entered]))
        yield from _recurring(site, outside)


def _updates(site: Int64, borders: Int64) -> Int64:
    """Return the first of these updates in each step."""
    nested = len(borders) >= FEWEST_BORDERS and _Stretches(site, borders).nested() >= NESTED
    return borders if nested else _first_parts(site, borders, MOST_OPTIMIZERS)


def _first_parts(site: Int64, borders: Int64, most_parts: int) -> Int64:
    """Return the first border of each step. If what is between them is hardly alike, a step may have more
    than `most_parts` of them."""
    if len(borders) < FEWEST_BORDERS:
        return borders
    stretches = _Stretches(site, borders)
    return borders[:: stretches.parts(most_parts if stretches.alike(1) >= ALIKE else MOST_PARTS)]


class _Stretches:
    """The different sites between each two borders, of the first MOST_COMPARED stretches.

    borders: indices of allocations, ascending.
    """

    def __init__(self, site: Int64, borders: Int64) -> None:
        borders = borders[: MOST_COMPARED + 1]
        inside = site[borders[0] : borders[-1]]
        stretch = np.repeat(np.arange(len(borders) - 1), np.diff(borders))
        self._sites = int(inside.max()) + 1
        self._key = distinct(stretch * self._sites + inside)  # of each site in each stretch
        self._count = np.bincount(self._key // self._sites)

    def _common(self, distance: int) -> Int64:
        """Return how many sites each stretch shares with the one so much before it."""
        key = self._key
        shared = key[np.isin(key, key + distance * self._sites)]
        return np.bincount(shared // self._sites, minlength=len(self._count))[distance:]

    def alike(self, distance: int) -> float:
        """Mean share of sites that two stretches have in common, 0 to 1."""
        common = self._common(distance)
        return _mean(common / (self._count[:-distance] + self._count[distance:] - common))

    def nested(self) -> float:
        """Mean share of the sites of the smaller one of two neighbours that the other one has, 0 to 1."""
        return _mean(self._common(1) / np.minimum(self._count[:-1], self._count[1:]))

    def parts(self, most: int) -> int:
        """Return how many runs make up a step: the distance at which they are most alike."""
        best, best_alike = 1, self.alike(1)
        for distance in range(2, min(most, len(self._count) // 2) + 1):
            if (alike := self.alike(distance)) > best_alike + BETTER:
                best, best_alike = distance, alike
        return best


def _mean(shares: Float64) -> float:
    return sum(shares.tolist()) / max(1, len(shares))


def _recurring(site: Int64, outside: Bool) -> Iterator[Int64]:
    """Yield the allocations of each site that separates similar stretches, the most frequent site first."""
    count = np.bincount(site)
    often = np.flatnonzero(count >= FEWEST_BORDERS)
    # Sites that are as frequent as each other mostly border the same stretches: one of them is enough.
    _, one = np.unique(-count[often], return_index=True)
    tried = often[one][:MOST_TRIED]
    rows = np.flatnonzero(mask_of(tried, len(count))[site])
    for chosen in tried:
        borders = rows[site[rows] == chosen]
        if _Stretches(site, borders[:FIRST_COMPARED]).alike(1) < FIRST_ALIKE:
            continue
        seen = np.logical_or.reduceat(outside, borders)[:-1]
        if _Stretches(site, borders).alike(1) >= ALIKE and seen.mean() >= OUTSIDE_SHARE:
            yield borders
