"""How much memory each allocation site, or each line of a snapshot, has at floors."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Float64, Int64
from tb_gpudiag.facts.core.intervals import groups
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.facts.memory.floor import Floors, evenly, later_slope, theil_sen
from tb_gpudiag.facts.memory.memory_kinds import Allocations
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.frames import Frame, innermost_place
from tb_gpudiag.vocabulary.operators import JOINS

MOST_COLUMNS = 250
"""Most floors at which sites are measured; of more, evenly spaced ones."""

MOST_SITES = 200
"""Most sites whose slope is computed: those that grew most between the first and the last floor."""


def site_keys(allocations: Allocations, chosen: Int64) -> tuple[Int64, Int64]:
    """Group allocations by site: (number of each one's site, one allocation of each site). chosen: shape
    (k,).

    A site is an operator at a place: the user's frame, or a snapshot's stack. Where neither is known, the
    size as a power of two is the place. Not for operators that join tensors: a cache's size grows. What a
    snapshot found when its history began is apart: nothing is known about it.
    """
    host, operator, place = allocations.host, allocations.operator[chosen], allocations.place[chosen]
    stack = allocations.site_stack[chosen]
    sized = (place == NONE) & (stack == NONE)
    sized[operator != NONE] &= ~match(host.events, JOINS)[operator[operator != NONE]]
    exponent = np.ceil(np.log2(np.maximum(allocations.bytes[chosen], 1))).astype(np.int64)
    size = np.where(sized, exponent, NONE)
    number, first = groups(
        host.names(operator), place, stack, size, allocations.found[chosen].astype(np.int64)
    )
    return number, chosen[first]


@dataclass(frozen=True, eq=False)
class FloorTable:
    """Memory of sites at floors.

    bytes, count: of each site at each floor, shape (g, c).
    column: index of each floor, shape (c,).
    alive: allocations that are alive at any of these floors, in order of time, shape (a,).
    site: the site of each of them, shape (a,).
    one: one allocation of each site, shape (g,).
    """

    bytes: Int64
    count: Int64
    column: Int64
    alive: Int64
    site: Int64
    one: Int64


def floor_table(allocations: Allocations, found: Floors) -> FloorTable:
    """Compute the table of the floors that are not excused, at most MOST_COLUMNS, and of the sites that
    changed most, at most MOST_SITES."""
    column = evenly(np.flatnonzero(~found.excused), MOST_COLUMNS)
    at = found.position[column]
    count = len(column)
    low = np.searchsorted(at, allocations.position, side="left")
    high = np.where(allocations.freed == NONE, count, np.searchsorted(at, allocations.freed, side="left"))
    alive = np.flatnonzero(high > low)
    low, high, size = low[alive], high[alive], allocations.bytes[alive]
    site, one = site_keys(allocations, alive)
    held = np.zeros(len(one), np.int64)
    np.add.at(held, site, np.where(high == count, size, 0) - np.where(low == 0, size, 0))
    kept = np.argsort(-np.abs(held), kind="stable")[:MOST_SITES]
    new = np.full(len(one), NONE, np.int64)
    new[kept] = np.arange(len(kept))
    some = new[site] != NONE
    alive, low, high, size, site = alive[some], low[some], high[some], size[some], new[site[some]]
    table = np.zeros((2, len(kept), count + 1), np.int64)
    for layer, weight in enumerate((size, np.ones_like(size))):
        np.add.at(table[layer], (site, low), weight)
        np.add.at(table[layer], (site, high), -weight)
    table = np.cumsum(table, axis=2)[:, :, :count]
    return FloorTable(table[0], table[1], column, alive, site, one[kept])


def growing_rows(table: FloorTable, x: Float64) -> list[tuple[int, float]]:
    """Return the rows that grow, with their slopes. x: of the last floors, shape (k,)."""
    rows = []
    for number in range(len(table.one)):
        y = table.bytes[number, -len(x) :].astype(np.float64)
        if y[-1] <= y[0]:
            continue
        slope, low, _ = theil_sen(x, y)
        if low > 0 and later_slope(x, y) > 0:
            rows.append((number, slope))
    return rows


def by_line(allocations: Allocations, table: FloorTable, without: list[int]) -> FloorTable:
    """Return the table of a snapshot's lines that allocate for several callers, without these sites.

    Where callers take turns, such as training and evaluation that both run a hook, what one of them allocated
    goes when the next one runs: only together do they keep more and more.
    """
    line = _line_numbers(allocations, table.one)
    line[without] = NONE
    number, rows, callers = np.unique(line, return_index=True, return_counts=True)
    shared = np.flatnonzero((number != NONE) & (callers > 1))
    new = np.full(len(table.one) + 1, NONE, np.int64)
    for code, one in enumerate(shared.tolist()):
        new[np.flatnonzero(line == number[one])] = code
    size, count = (
        np.array([part[new[:-1] == code].sum(axis=0) for code in range(len(shared))], np.int64)
        for part in (table.bytes, table.count)
    )
    some = new[table.site] != NONE
    return FloorTable(
        size, count, table.column, table.alive[some], new[table.site[some]], table.one[rows[shared]]
    )


def _line_numbers(allocations: Allocations, chosen: Int64) -> Int64:
    """Number the innermost of the user's lines in a snapshot's stack of each of these allocations, shape
    (k,); NONE without one, and for what was found when the history began."""
    stacks, code = allocations.memory.stacks, dict[Frame, int]()
    number = np.full(len(chosen), NONE, np.int64)
    for at, stack in enumerate(np.where(allocations.found[chosen], NONE, allocations.stack[chosen]).tolist()):
        place = innermost_place(stacks[stack]) if stack != NONE else None
        if place is not None:
            number[at] = code.setdefault(place, len(code))
    return number
