"""Allocation sites: how much memory each one retains at the floor of every step, and which ones grow.

Every allocation is alive at a floor or not, so the bytes of all sites and the memory from before the
recording add up to each floor. Growth shows both where tensors are retained one by one (a list) and where a
larger one replaces the last one (a cache that is concatenated), so that nothing lives long.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpudiag.arrays import NONE, Float64, Int64, UInt8
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.facts.memory.allocations import Allocations
from tb_gpudiag.facts.memory.floor import Floors, evenly, theil_sen
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.trace.events import MemoryEvents
from tb_gpudiag.vocabulary.frames import Frame, innermost_place, old_call_stack, parse_frame
from tb_gpudiag.vocabulary.marks import module_class, module_name
from tb_gpudiag.vocabulary.operators import JOINS
from tb_gpudiag.vocabulary.recorded import Category
from tb_gpudiag.vocabulary.torch_frames import in_no_grad, is_optimizer_state

MOST_COLUMNS = 250
"""Most floors at which sites are measured; of more, evenly spaced ones."""

MOST_SITES = 200
"""Most sites whose slope is computed: those that grew most between the first and the last floor."""

MOST_FRAMES = 60

MOST_TIMES = 100
"""Most allocations whose times a site has."""


@dataclass(frozen=True)
class GrowingSite:
    """Allocations of one operator at one place, more of which are alive at the floor from step to step."""

    operator: str
    module: str  # `Linear_3`; of several modules, the class with most bytes: `Linear`; "" unknown
    frame: Frame | None  # the user's own line
    stack: str  # of one allocation: Python frames, outermost first, one per line
    phase: Phase  # in which most of it was allocated
    bytes: int  # alive at the last floor
    count: int  # allocations of these
    size_bytes: int  # allocations of this size or smaller hold half of the bytes
    even: bool  # these are all of one size
    steps: int  # in which these were allocated
    old_count: int  # of count: allocated at least two steps before the last floor's step
    per_unit: float  # Theil-Sen slope of its bytes at the floors, per step or second (Periods.unit)
    low: float  # its confidence interval, as in Trend
    high: float
    count_per_unit: float  # slope of the number alive
    count_later: float  # the same within the second half
    times_ns: Int64  # when those were allocated: at most MOST_TIMES, evenly chosen, shape (t,)
    events: Int64  # their operators' spans, or NONE, shape (t,)

    in_optimizer: bool  # torch's own optimizer allocated it, as its state
    grad_mode: bool | None  # allocated where autograd records a graph; None if unknown

    @property
    def replaced(self) -> bool:
        """Whether larger tensors replace smaller ones: their number does not grow."""
        return self.count_per_unit <= 0


def site_keys(allocations: Allocations, host: Host, chosen: Int64) -> tuple[Int64, Int64]:
    """Group allocations by site: (number of each one's site, one allocation of each site). chosen: shape
    (k,).

    A site is an operator at a place: the user's frame, or a snapshot's stack. Where neither is known, the
    size as a power of two is the place. Not for operators that join tensors: a cache's size grows.
    """
    operator, place = allocations.operator[chosen], allocations.place[chosen]
    name = np.where(operator == NONE, NONE, host.events.name[operator] if len(host.events) else NONE)
    stack = allocations.stack[chosen].astype(np.int64)
    nowhere = (place == NONE) & (stack == NONE)
    joins = np.zeros(len(chosen), np.bool_)
    if len(host.events):
        joins = match(host.events, JOINS)[operator] & (operator != NONE)
    size = np.where(nowhere & ~joins, size_class(allocations.bytes[chosen]), NONE)
    where = np.where(place == NONE, stack + max(1, int(place.max(initial=0)) + 1), place)
    where = np.where(nowhere, NONE, where)
    number, first = groups(name.astype(np.int64), where, size)
    return number, chosen[first]


def size_class(size: Int64) -> Int64:
    """Return the exponent of the smallest power of two that is not below, shape of `size`."""
    return np.ceil(np.log2(np.maximum(size, 1))).astype(np.int64)


def groups(*columns: Int64) -> tuple[Int64, Int64]:
    """Group equal rows of codes (NONE or more): (the group of each row, the first row of each group)."""
    number = np.zeros(len(columns[0]), np.int64)
    first = number
    for column in columns:
        # Numbers of groups are small, so a product of two codes does not overflow.
        both = number * (int(column.max(initial=0)) + 2) + column + 1
        _, first, number = np.unique(both, return_index=True, return_inverse=True)
        number = number.reshape(-1)
    return number, first


@dataclass(frozen=True)
class FloorTable:
    """Memory of sites at floors.

    bytes, count: of each site at each floor, shape (g, c).
    column: index of each floor, shape (c,).
    alive: allocations that are alive at any of these floors, shape (a,).
    site: site of each of these, shape (a,).
    one: one allocation of each site, shape (g,).
    """

    bytes: Int64
    count: Int64
    column: Int64
    alive: Int64
    site: Int64
    one: Int64


def floor_table(allocations: Allocations, found: Floors, host: Host) -> FloorTable:
    """Compute the table of the floors that are not excused, at most MOST_COLUMNS, and of the sites that
    changed most, at most MOST_SITES."""
    column = evenly(np.flatnonzero(~found.excused), MOST_COLUMNS)
    at = found.position[column]
    count = len(column)
    low = np.searchsorted(at, allocations.position, side="left")
    high = np.where(allocations.freed == NONE, count, np.searchsorted(at, allocations.freed, side="left"))
    alive = np.flatnonzero(high > low)
    low, high, size = low[alive], high[alive], allocations.bytes[alive]
    site, one = site_keys(allocations, host, alive)
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


def growing_sites(
    allocations: Allocations, found: Floors, host: Host, memory: MemoryEvents, phase: UInt8
) -> list[GrowingSite]:
    """Find the sites that grow from floor to floor (the slope's whole interval is above 0) and also in the
    second half, fastest first.

    phase: of each memory event, shape (m,).
    """
    if not allocations.paired or (~found.excused).sum() < 2:
        return []
    table = floor_table(allocations, found, host)
    x = found.periods.at[table.column]
    sites = []
    for number in range(len(table.one)):
        y = table.bytes[number].astype(np.float64)
        if y[-1] <= y[0]:
            continue
        slope, low, high = theil_sen(x, y)
        half = (len(x) + 1) // 2
        later = theil_sen(x[-half:], y[-half:])[0] if half > 1 else slope
        if low <= 0 or later <= 0:
            continue
        sites.append(_site(allocations, found, host, memory, phase, table, number, x, (slope, low, high)))
    return sorted(sites, key=lambda site: -site.per_unit)


def _site(
    allocations: Allocations,
    found: Floors,
    host: Host,
    memory: MemoryEvents,
    phase: UInt8,
    table: FloorTable,
    number: int,
    x: Float64,
    slopes: tuple[float, float, float],
) -> GrowingSite:
    """Describe one row of the table. slopes: (slope, low, high)."""
    slope, low, high = slopes
    own = table.alive[table.site == number]
    last = int(found.position[table.column[-1]])
    freed = allocations.freed[own]
    held = own[(allocations.position[own] <= last) & ((freed == NONE) | (freed > last))]
    size = allocations.bytes[held]
    periods = found.periods
    step = np.searchsorted(periods.start_ns, allocations.time_ns[held], side="right") - 1
    shown = evenly(held, MOST_TIMES)
    one = int(table.one[number])
    operator, stack = int(allocations.operator[one]), int(allocations.stack[one])
    place = int(allocations.place[one])
    text = memory.stacks[stack] if stack != NONE else host_stack(host, operator)
    frame = host.frame(place) if place != NONE else innermost_place(text)
    counts, half = table.count[number].astype(np.float64), (len(x) + 1) // 2
    count_per_unit = theil_sen(x, counts)[0]
    phases = np.bincount(phase[allocations.event[held]], weights=size, minlength=len(Phase))
    return GrowingSite(
        operator=span_name(host, operator),
        module=_module(allocations.module[held], size, host),
        frame=frame,
        stack=text,
        phase=Phase(int(phases.argmax())),
        bytes=int(size.sum()),
        count=len(held),
        size_bytes=_usual_size(size),
        even=bool((size == size[:1]).all()),
        steps=len(np.unique(step)),
        old_count=int((step <= int(table.column[-1]) - 2).sum()),
        per_unit=slope,
        low=low,
        high=high,
        count_per_unit=count_per_unit,
        count_later=theil_sen(x[-half:], counts[-half:])[0] if half > 1 else count_per_unit,
        times_ns=allocations.time_ns[shown],
        events=allocations.operator[shown],
        in_optimizer=is_optimizer_state(text),
        grad_mode=_grad_mode(host, operator, text),
    )


def _usual_size(size: Int64) -> int:
    """Return the median, weighted by bytes: a few large tensors matter more than many small ones."""
    if not len(size):
        return 0
    ordered = np.sort(size)
    held = np.cumsum(ordered)
    return int(ordered[np.searchsorted(2 * held, held[-1])])


def _grad_mode(host: Host, operator: int, stack: str) -> bool | None:
    """Autograd numbers the operators that it records. A snapshot shows only decorators that turn it off."""
    events = host.events
    if operator == NONE or not (events.sequence != NONE).any():
        return False if in_no_grad(stack) else None
    chain = [operator, *host.tree.ancestors(operator)]
    return any(events.sequence[i] != NONE for i in chain if events.category[i] == Category.CPU_OP)


def _module(event: Int64, size: Int64, host: Host) -> str:
    """Return `Linear_3` if all known modules are that one; of several, the class with most bytes."""
    known = event != NONE
    if not known.any():
        return ""
    code, number = np.unique(host.events.name[event[known]], return_inverse=True)
    names = [host.events.names[int(i)] for i in code]
    if len(names) == 1:
        return module_name(names[0])
    held: dict[str, float] = {}
    for name, total in zip(names, np.bincount(number.reshape(-1), weights=size[known]), strict=True):
        held[module_class(name)] = held.get(module_class(name), 0.0) + total
    return max(held, key=lambda module: held[module])


def span_name(host: Host, event: int) -> str:
    """Return the event's name; "" for NONE."""
    return "" if event == NONE else host.events.names[host.events.name[event]]


def host_stack(host: Host, event: int) -> str:
    """Return the innermost MOST_FRAMES Python frames around an event, one per line, outermost first."""
    events = host.events
    chain = [i for i in host.tree.ancestors(event) if not host.see_through[i]] if event != NONE else []
    frames = [events.names[events.name[i]] for i in chain if events.category[i] == Category.PYTHON_FUNCTION]
    if not frames and event != NONE and events.call_stack[event] != NONE:
        frames = old_call_stack(events.call_stacks[events.call_stack[event]])[::-1]
    return "\n".join([frame for frame in frames if parse_frame(frame) is not None][-MOST_FRAMES:])
