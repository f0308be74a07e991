"""Allocation sites: how much memory each one retains at the floor of every step, which ones grow, and which
one has most memory that is never freed.

Every allocation is alive at a floor or not, so the bytes of all sites and the memory from before the
recording add up to each floor. Growth shows both where tensors are retained one by one (a list) and where a
larger one replaces the last one (a cache that is concatenated), so that nothing lives long.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from tb_gpudiag.arrays import NONE, Float64, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.memory.containers import Containers, Holder
from tb_gpudiag.facts.memory.floor import Floors, evenly, theil_sen
from tb_gpudiag.facts.memory.floor_table import FloorTable, by_line, floor_table, growing_rows, site_keys
from tb_gpudiag.facts.memory.memory_kinds import Allocations
from tb_gpudiag.facts.memory.noted_tensors import NOT_NOTED, NotedGrowth
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.facts.memory.recorded_nodes import grad_mode
from tb_gpudiag.facts.memory.snapshot_places import StackPlaces, older_count
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.frames import Frame, innermost_place, old_call_stack, parse_frame
from tb_gpudiag.vocabulary.marks import module_class, module_name
from tb_gpudiag.vocabulary.recorded import Category
from tb_gpudiag.vocabulary.torch_frames import is_optimizer_history

MOST_FRAMES = 60

MOST_TIMES = 100
"""Most allocations whose times a site has."""

PARTS = 8
"""The recording is divided into this many parts with as many allocations each."""

FEWEST_PARTS = 6
"""Survivors are in at least this many parts: weights and state are allocated at once, and what a step still
needs is allocated at the end."""


@dataclass(frozen=True, eq=False)
class GrowingSite:
    """Allocations of one operator at one place, more of which are alive at the floor from step to step."""

    operator: str
    within: str  # the operator that calls it, or itself: bincount calls zeros
    module: str  # `Linear_3`; of several modules, the class with most bytes: `Linear`; "" unknown
    frame: Frame | None  # the user's own line
    stack: str  # of one allocation: Python frames, outermost first, one per line
    phase: Phase  # in which most of it was allocated
    bytes: int  # alive at the last floor
    count: int  # allocations alive at the last floor
    sizes: Int64  # of each of these in bytes, shape (count,)
    size_bytes: int  # allocations of this size or smaller hold half of the bytes
    even: bool  # these are all of one size
    steps: int  # in which these were allocated
    per_unit: float  # Theil-Sen slope of its bytes at the floors, per step or second (Periods.unit)
    count_per_unit: float  # slope of the number alive
    fell: float  # the most that went between two floors, older ones of its sizes too; of the most alive
    rose: int  # how often its bytes rose from floor to floor; 0 if they also fell
    times_ns: Int64  # when those were allocated: at most MOST_TIMES, evenly chosen, shape (t,)
    events: Int64  # their operators' spans, or NONE, shape (t,)

    holder: Holder | None  # the container that receives it; None if unknown
    in_optimizer: bool  # L-BFGS allocated it, as its history
    grad_mode: bool | None  # allocated where autograd records a graph; None if unknown
    moment: float  # when in a step these are allocated, usually: 0 at its start, 1 at its end
    noted: NotedGrowth = NOT_NOTED  # of the tensors that Python holds

    @property
    def replaced(self) -> bool:
        """Whether larger tensors replace smaller ones: their number does not grow."""
        return self.count_per_unit <= 0 or self.count == 1


def growing_sites(allocations: Allocations, found: Floors) -> list[GrowingSite]:
    """Find the sites that grow from floor to floor (the slope's whole interval is above 0) and also in the
    second half, fastest first."""
    if not allocations.paired or (~found.excused).sum() < 2:
        return []
    table = floor_table(allocations, found)
    containers = Containers(allocations.host)
    places = StackPlaces(allocations, int(found.position[table.column[-1]]))
    first = int(np.searchsorted(table.column, found.last_rate))
    x, sites = found.periods.at[table.column[first:]], []
    own = growing_rows(table, x)
    for number, slope in own:
        sites.append(_site(allocations, found, table, containers, places, number, x, slope))
    lines = by_line(allocations, table, [number for number, _ in own])
    for number, slope in growing_rows(lines, x):
        site = _site(allocations, found, lines, containers, places, number, x, slope)
        sites.append(replace(site, frame=innermost_place(site.stack)))
    return sorted(sites, key=lambda site: -site.per_unit)


LEAST_SHARE = 0.1
"""What holds less of what stays is not worth a place."""


def sites_of_sizes(
    allocations: Allocations, found: Floors, sizes: Collection[int], rate: float
) -> list[GrowingSite]:
    """Return the sites of the allocations of these sizes that are alive at the last floor, largest first.
    rate: bytes per unit that they grow by together."""
    if not allocations.paired or (~found.excused).sum() < 2:
        return []
    table = floor_table(allocations, found)
    last = allocations.alive(int(found.position[table.column[-1]]))
    chosen = np.isin(allocations.bytes, list(sizes)) & np.isin(np.arange(len(allocations)), last)
    chosen &= allocations.phase != Phase.PARAMETER
    own = chosen[table.alive]
    held = np.bincount(table.site[own], weights=allocations.bytes[table.alive[own]], minlength=len(table.one))
    containers, x = Containers(allocations.host), found.periods.at[table.column]
    places = StackPlaces(allocations, int(found.position[table.column[-1]]))
    numbers = [int(i) for i in np.argsort(-held) if held[i] >= max(1, LEAST_SHARE * held.sum())]
    parts = [rate * float(held[i]) / float(held[numbers].sum()) for i in numbers]
    return [
        _site(allocations, found, table, containers, places, number, x, part)
        for number, part in zip(numbers, parts, strict=True)
    ]


def _site(
    allocations: Allocations,
    found: Floors,
    table: FloorTable,
    containers: Containers,
    places: StackPlaces,
    number: int,
    x: Float64,
    slope: float,
) -> GrowingSite:
    """Describe one row of the table."""
    mine = table.site == number
    own = table.alive[mine]
    last = int(found.position[table.column[-1]])
    freed = allocations.freed[own]
    held = own[(allocations.position[own] <= last) & ((freed == NONE) | (freed > last))]
    size = allocations.bytes[held]
    step = np.searchsorted(found.periods.start_ns, allocations.time_ns[held], side="right") - 1
    shown = evenly(held, MOST_TIMES)
    host, one = allocations.host, int(own[-1])  # the recording shows most about the last one
    operator, stack = int(allocations.operator[one]), int(allocations.stack[one])
    text = allocations.memory.stacks[stack] if stack != NONE else host_stack(host, operator)
    counts, change = (
        table.count[number, -len(x) :].astype(np.float64),
        np.diff(table.bytes[number, -len(x) :]),
    )
    phases = np.bincount(allocations.phase[held], weights=size, minlength=len(Phase))
    # Where the floor never falls, what is older and goes is another site's, however large it is.
    falls = bool((np.diff(found.bytes[table.column]) < 0).any())
    sizes = np.unique(size) if falls else size[:0]
    alive = counts + older_count(allocations, sizes, found.position[table.column])[-len(x) :]
    return GrowingSite(
        operator=host.name(operator),
        within=_outermost_operator(host, operator),
        module=_module(allocations.module[held], size, host),
        frame=places.frame(stack) or allocations.frame(one) or innermost_place(text),
        stack=text,
        phase=Phase(int(phases.argmax())),
        bytes=int(size.sum()),
        count=len(held),
        sizes=size,
        size_bytes=_usual_size(size),
        even=bool((size == size[:1]).all()),
        steps=len(np.unique(step)),
        per_unit=slope,
        count_per_unit=theil_sen(x, counts)[0],
        fell=float(-np.diff(alive).min(initial=0)) / max(1.0, float(alive.max())),
        rose=int((change > 0).sum()) if (change >= 0).all() else 0,
        times_ns=allocations.time_ns[shown],
        events=allocations.operator[shown],
        holder=containers.holder(
            allocations.time_ns[shown], allocations.memory.thread[allocations.event[shown]]
        ),
        in_optimizer=is_optimizer_history(text),
        grad_mode=grad_mode(host, operator, text),
        moment=_moment(allocations.time_ns[shown], found),
    )


@dataclass(frozen=True)
class Survivors:
    """The site with most memory in survivors: allocations made throughout the recording and never freed."""

    operator: str
    frame: Frame | None
    bytes: int
    count: int


def largest_survivors(allocations: Allocations) -> Survivors | None:
    """Find the site with most memory that is never freed; None without one, and without addresses."""
    kept = (allocations.freed == NONE) & (allocations.phase != Phase.PARAMETER) & ~allocations.found
    chosen = np.flatnonzero(kept)
    if not allocations.paired or not len(chosen):
        return None
    site, one = site_keys(allocations, chosen)
    part = chosen * PARTS // len(allocations)
    parts = np.zeros((len(one), PARTS), np.bool_)
    parts[site, part] = True
    size = np.bincount(site, weights=allocations.bytes[chosen], minlength=len(one))
    size[parts.sum(axis=1) < FEWEST_PARTS] = 0
    largest = int(size.argmax())
    if not size[largest]:
        return None
    row = int(one[largest])
    return Survivors(
        operator=allocations.host.name(int(allocations.operator[row])),
        frame=allocations.frame(row),
        bytes=int(size[largest]),
        count=int((site == largest).sum()),
    )


def _moment(times_ns: Int64, found: Floors) -> float:
    start, end = found.periods.start_ns, found.periods.end_ns
    step = np.clip(np.searchsorted(start, times_ns, side="right") - 1, 0, len(start) - 1)
    return float(np.median((times_ns - start[step]) / np.maximum(1, end[step] - start[step])))


def _usual_size(size: Int64) -> int:
    """Return the median, weighted by bytes: a few large tensors matter more than many small ones."""
    if not len(size):
        return 0
    ordered = np.sort(size)
    held = np.cumsum(ordered)
    return int(ordered[np.searchsorted(2 * held, held[-1])])


def _outermost_operator(host: Host, event: int) -> str:
    """Return the outermost of the operators that call each other around an event; "" if it is none."""
    found = ""
    for i in reversed(host.tree.ancestors(event)):
        if host.events.category[i] != Category.CPU_OP:
            break
        found = host.name(i)
    return found


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


def host_stack(host: Host, event: int) -> str:
    """Return the innermost MOST_FRAMES Python frames around an event, one per line, outermost first."""
    events = host.events
    chain = [i for i in host.tree.ancestors(event) if not host.see_through[i]] if event != NONE else []
    frames = [events.names[events.name[i]] for i in chain if events.category[i] == Category.PYTHON_FUNCTION]
    if not frames and event != NONE and events.call_stack[event] != NONE:
        frames = old_call_stack(events.call_stacks[events.call_stack[event]])[::-1]
    return "\n".join([frame for frame in frames if parse_frame(frame) is not None][-MOST_FRAMES:])
