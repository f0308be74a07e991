"""Leak detection: whether a memory floor rises for good, how fast, and which allocation sites raise it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.facts.memory.sites import GrowingSite
from tb_gpudiag.rules.shared.kept_sites import (
    is_filling,
    is_from_steps,
    is_kept,
    may_have_limit,
    may_replace,
    net_share,
)
from tb_gpudiag.rules.shared.leak_causes import CAUSE_SHARE, Explained, causes_of
from tb_gpudiag.vocabulary.torch_frames import MODULE_FRAME

if TYPE_CHECKING:
    from tb_gpudiag.facts.memory.device_memory import DeviceMemory

# Jobs keep a number or two per step on purpose. 4 KiB per step are 4 GiB after a million steps.
LEAST_BYTES_PER_STEP = 4 * 2**10

# An inferred step may be the half of one, as of two networks that are trained in turns.
INFERRED_PART = 0.5

# Not counting the first step. A line fits any two floors, and a third one confirms it.
FEWEST_STEPS = 3

# With only two floors, other evidence confirms a leak: each of the three steps leaves allocations of the same
# size behind until the end of the recording, and these explain at least this share of the rise.
LEFT_SHARE = 0.9

# A plateau (a filled cache, optimizer state) grew earlier and no longer does. In a leak, the number of
# retained allocations grows in the second half of the recording at half of its usual rate or more.
LATER_SHARE = 0.5

# A leak is visible in the allocations: more and more of one site are alive two steps later, or each step
# replaces one by a larger one. If these explain less than half of the rise, batches of changing sizes may
# have caused it.
EXPLAINED_SHARE = 0.5

# A replaced allocation is a cache if each has the one before in it, or if it grows by the same amount in
# every step, or now and then, within a tenth. Batches of changing sizes do not. Old traces have no addresses
# and do not show what is still alive, so there the floor itself has to rise this evenly.
EVEN_SHARE = 0.1

# A snapshot does not show what a tensor was joined from. Batches of changing sizes become larger so often,
# and never smaller, once in 40,000 times.
FEWEST_RISES = 7

# Batches of changing sizes move the floor by more than a leak does in a few steps. What a line keeps shows
# the leak anyway, if it kept something of most steps.
KEPT_STEPS_SHARE = 0.5

# Without steps, a rate holds for about as long as it was seen: a forward pass of 0.1 s says nothing about an
# hour.
LEAST_SECONDS = 10.0

# A buffer with fewer entries than this frees what the recording saw it take: tensors that stay for so many
# steps are kept for good, whatever was freed before the recording.
SURE_STEPS = 256

# Less is no certainty: replay buffers and caches have hundreds of entries. With so many steps, most rings and
# windows would have been seen to drop an entry.
LIKELY_STEPS = 100

# A buffer that the job's steps had filled before the recording has as many steps' entries at most. After as
# many steps, the recording shows how it drops entries. Its second half decides whether memory still grows.
EARLY = 2

# What fills in a dozen steps looks like a leak in as many: of 51 loops that do not leak, 17 did so in steps 3
# to 14, and 3 in steps 3 to 34.
FIRST_STEPS = 30

# Of a site that keeps one more in each step, one or two fewer are alive at some floors. If so much of it goes
# at once, it is dropped now and then: halved, cleared, swept.
DROPPED_SHARE = 1 / 3

# What a thread of the job's own frees is seen to be gone only when its address is allocated again. If so much
# of a site is seen so, the rest may be gone as well. Two threads that use one address in the same instant
# make one of hundreds look so.
UNSEEN_SHARE = 0.05

# Objects in reference cycles hold a result of each step, or of none. The last step's batch is freed anyway.
COLLECTED_SHARE = 0.5

# Where the job's own loop allocates: in the other phases torch runs through layers and parameters.
_OWN_CODE = (Phase.UNKNOWN, Phase.INPUT, Phase.FORWARD)

FloorState = Literal["rising", "level", "plateau", "falling", "unclear"]


def state_of(memory: DeviceMemory) -> FloorState | None:
    """Say whether memory grows: its floors rise, or they are too noisy to show that sites keep more and more.

    None if there are too few steps to tell.
    """
    state = floor_state(memory)
    if state is not None and is_steady(memory):
        return "rising"
    if not repeats(memory):
        return "unclear" if state == "rising" else state
    trend = memory.trend
    if state is None or trend is None or trend.steps < FEWEST_STEPS or not _keeps_in_most_steps(memory):
        return state
    # Windows of time that keep more and more while the floor falls, or rises no more, are phases of one pass.
    return "rising" if trend.unit == "step" or min(trend.per_unit, trend.later) > 0 else state


def is_steady(memory: DeviceMemory) -> bool:
    """Whether memory was noted to grow since the job began, still does in the recording, and most of it is
    neither an optimizer's history nor garbage."""
    trend, rate = memory.trend, memory.steady_per_step
    if trend is None or trend.unit != "step" or rate < LEAST_BYTES_PER_STEP:
        return False
    bounded = sum(site.per_unit for site in memory.sites if site.in_optimizer or is_collected(site))
    later = max(trend.later, _rise_later(memory))
    return later >= LATER_SHARE * rate and bounded <= CAUSE_SHARE * rate


def _rise_later(memory: DeviceMemory) -> float:
    """Return by how much the floor rises per unit from the middle to the end. Where something is kept in each
    fifth step, this is more than the median of the slopes: most are 0."""
    own = ~memory.floors.excused
    at, floor = memory.floors.periods.at[own], memory.floors.bytes[own]
    middle = len(at) // 2
    return float((floor[-1] - floor[middle]) / (at[-1] - at[middle])) if len(at) > 1 else 0.0


def repeats(memory: DeviceMemory) -> bool:
    """Whether the recording shows that what grows repeats: it has steps, or lines outside of the model keep
    most of it. The layers of a single forward pass keep more and more, too, and so does a single backward
    pass, one gradient after the other, and data that does not fit before a model is called."""
    trend = memory.trend
    if trend is None or trend.unit == "step":
        return True
    if memory.failure is not None and not memory.allocations.in_module.any():
        return False
    outside = sum(
        site.per_unit
        for site in keepers(memory)
        if memory.has_modules
        and site.frame is not None
        and not site.module
        and site.phase in _OWN_CODE
        and not MODULE_FRAME.search(site.stack)
    )
    return outside >= EXPLAINED_SHARE * trend.per_unit


def floor_state(memory: DeviceMemory) -> FloorState | None:
    """Classify the floors of the steps; None if there are too few steps to tell."""
    trend = memory.trend
    if trend is None:
        return None
    if trend.steps < FEWEST_STEPS:
        return "rising" if _is_left_by_each_step(memory, trend.per_unit) else None
    least = least_per_unit(memory)
    if trend.high < 0 and -trend.per_unit >= least:
        return "falling"
    if max(trend.per_unit, trend.earlier) < least:
        return "level"
    if trend.per_unit < least:
        return "plateau" if risen_bytes(memory) >= LEAST_BYTES_PER_STEP else "unclear"
    if trend.low > 0 and _is_confirmed(memory):
        return "rising"
    return "plateau" if trend.later < LATER_SHARE * trend.per_unit else "unclear"


def growth_per_unit(memory: DeviceMemory) -> float:
    """Return how fast memory grows: the floor's slope, or what the growing sites keep where the floor is
    noisy."""
    trend = memory.trend
    if trend is None:
        return 0.0
    if not _growing_keepers(memory) and is_steady(memory):
        return memory.steady_per_step
    kept, net = kept_per_unit(memory), sum(site.per_unit * net_share(site) for site in keepers(memory))
    if net < kept:
        return net
    if trend.steps < FEWEST_STEPS or is_even(trend.low, trend.high, trend.per_unit):
        return trend.per_unit
    return kept if trend.low <= kept <= trend.high or trend.low <= 0 else trend.per_unit


def until_full(memory: DeviceMemory) -> float:
    """Return the steps or seconds (the trend's unit) until the peak, which rises with the floor, reaches the
    capacity; 0 if memory does not grow, or if the capacity is not known."""
    trend, rate = memory.trend, growth_per_unit(memory)
    if trend is None or not memory.capacity_bytes or rate <= 0:
        return 0.0
    if min(trend.low, trend.later) <= 0 and state_of(memory) != "rising":
        return 0.0
    if trend.unit == "second" and trend.end_ns - trend.start_ns < LEAST_SECONDS * 1e9:
        return 0.0
    return max(0, memory.capacity_bytes - memory.peak.allocated_bytes) / rate


def kept_per_unit(memory: DeviceMemory) -> float:
    """Return by how many bytes the growing sites raise the floor."""
    return sum(site.per_unit for site in keepers(memory))


def least_per_unit(memory: DeviceMemory) -> float:
    """Return LEAST_BYTES_PER_STEP, or what that is per second where windows of time replace the steps, and in
    what may be a part of one."""
    periods = memory.floors.periods
    seconds = 1.0 if periods.unit == "step" else max(1e-9, float(periods.at[1] - periods.at[0]))
    return LEAST_BYTES_PER_STEP / seconds * (INFERRED_PART if periods.inferred else 1.0)


def risen_bytes(memory: DeviceMemory) -> int:
    """Bytes that the last floor is above the first one, not counting excused steps."""
    compared = memory.floors.bytes[~memory.floors.excused]
    return int(compared[-1] - compared[0])


def keepers(memory: DeviceMemory) -> list[GrowingSite]:
    """Sites that raise the floor, fastest first.

    They hold more and more, some of it for two steps or longer, or what they hold is replaced evenly by
    larger or more allocations. An optimizer's own state is bounded: L-BFGS fills its history. Without such
    sites, those that made what was noted to stay.
    """
    return _growing_keepers(memory) or (memory.steady_sites if is_steady(memory) else [])


def _growing_keepers(memory: DeviceMemory) -> list[GrowingSite]:
    replacing = replacers(memory)
    return [
        site
        for site in memory.sites
        if not (site.in_optimizer or is_collected(site) or _is_freed_unseen(site))
        and _keeps(site)
        and site not in replacing
    ]


def is_collected(site: GrowingSite) -> bool:
    """Whether the collector that NotingTensors runs after the last step freed what the site keeps: it is in
    reference cycles."""
    return site.noted is not None and site.freed_later >= COLLECTED_SHARE


def _is_freed_unseen(site: GrowingSite) -> bool:
    """Whether a thread that the profiler does not see frees what the site allocates, and it was not noted to
    become more."""
    return site.freed_unseen >= UNSEEN_SHARE and not is_kept(site)


def fills(memory: DeviceMemory) -> bool:
    """Whether most of what grows is in containers with a limit that are not full."""
    own = keepers(memory)
    filling = sum(site.per_unit for site in own if is_filling(site))
    return filling > CAUSE_SHARE * sum(site.per_unit for site in own)


def causes(memory: DeviceMemory) -> list[Explained]:
    """Return the usual causes of what grows, the fastest first."""
    return causes_of(keepers(memory), memory)


def replacers(memory: DeviceMemory) -> list[GrowingSite]:
    """Sites whose container may have been full before the recording and drop its oldest entries, where the
    recording does not show frees of older memory."""
    may_be_full = memory.misses_old_frees and not covers(memory, SURE_STEPS)
    return [site for site in memory.sites if may_be_full and may_replace(site)]


def covers(memory: DeviceMemory, steps: int) -> bool:
    """Whether the recording has so many steps: no buffer with fewer entries looks like a leak in it."""
    trend = memory.trend
    return trend is not None and trend.unit == "step" and trend.steps >= steps


def begins_early(memory: DeviceMemory) -> bool:
    """Whether no buffer that the job's steps had filled before the recording looks like a leak in it. Notes
    know more."""
    trend, before = memory.trend, memory.steps_before
    if trend is None or before is None or memory.is_noted:
        return False
    return trend.steps >= max(FIRST_STEPS, EARLY * before)


def filled_by_steps(memory: DeviceMemory) -> bool:
    """Whether hardly any buffer of what grows is filled before the first step."""
    own = keepers(memory)
    filled = sum(site.per_unit for site in own if is_from_steps(site))
    return filled > CAUSE_SHARE * sum(site.per_unit for site in own)


def may_fill(memory: DeviceMemory) -> bool:
    """Whether most of what grows is in deques that may have a limit, and were empty when the job began."""
    if memory.misses_old_frees or not memory.begins_with_job or covers(memory, SURE_STEPS):
        return False
    own = keepers(memory)
    filling = sum(site.per_unit for site in own if may_have_limit(site))
    return filling > CAUSE_SHARE * sum(site.per_unit for site in own)


def is_dropped(site: GrowingSite) -> bool:
    """Whether much of what the site keeps was seen to go at once, and it was not noted to become more."""
    return site.fell >= DROPPED_SHARE and not is_kept(site)


def _keeps(site: GrowingSite) -> bool:
    if is_dropped(site):
        return False
    if site.replaced:
        even = site.pace.in_even_jumps or is_even(site.low, site.high, site.per_unit)
        return even or site.extended or (not site.operator and site.pace.rises >= FEWEST_RISES)
    # What is copied anew, with more each time, is never old.
    lasts = site.old_count > 0 or site.pace.in_even_jumps
    return lasts and site.count_later >= LATER_SHARE * site.count_per_unit


def _keeps_in_most_steps(memory: DeviceMemory) -> bool:
    """Whether sites keep something of most steps, and the floor may rise as fast: its noise hides it."""
    trend = memory.trend
    assert trend is not None  # state_of has checked
    steady = [s for s in keepers(memory) if not s.replaced and s.steps >= KEPT_STEPS_SHARE * trend.steps]
    kept = sum(site.per_unit for site in steady)
    return kept >= least_per_unit(memory) and floor_allows(memory, kept)


def floor_allows(memory: DeviceMemory, kept: float) -> bool:
    """Whether the floor may rise at half of this rate or faster. If not, it replaces older memory."""
    return memory.trend is not None and memory.trend.high >= EXPLAINED_SHARE * kept


def _is_confirmed(memory: DeviceMemory) -> bool:
    """Whether allocations explain the rise, or in old traces, whether the rise is even."""
    trend = memory.trend
    assert trend is not None  # state_of has checked
    if not memory.allocations.paired:
        return is_even(trend.low, trend.high, trend.per_unit)
    return kept_per_unit(memory) >= EXPLAINED_SHARE * trend.per_unit


def _is_left_by_each_step(memory: DeviceMemory, slope: float) -> bool:
    """Whether each of three steps left the same allocations behind, which explain the rise."""
    allocations, steps = memory.allocations, memory.floors.periods
    never_freed = allocations.freed == NONE
    left = 0.0
    for site in keepers(memory):
        same = never_freed & (allocations.bytes == site.size_bytes)
        made_in = np.searchsorted(steps.start_ns, allocations.time_ns[same], side="right") - 1
        if len(np.unique(made_in[made_in >= 0])) == len(steps) >= FEWEST_STEPS:
            left += site.per_unit
    return slope >= LEAST_BYTES_PER_STEP and left >= LEFT_SHARE * slope


def is_even(low: float, high: float, slope: float) -> bool:
    """Whether a slope between these bounds differs from this one by no more than EVEN_SHARE."""
    return 0 <= high - low <= EVEN_SHARE * slope
