"""Growth that may end, or has: it slows down, has stopped, drops its oldest, is an optimizer's state, or went
again."""

from __future__ import annotations

from collections import Counter

import numpy as np

from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.facts.memory.sites import GrowingSite
from tb_gpudiag.rules.shared.kept_sites import EACH_STEP, KEPT_SINCE_START, is_kept
from tb_gpudiag.rules.shared.leak_causes import CAUSE_SHARE
from tb_gpudiag.rules.shared.leak_state import LATER_SHARE, LEAST_BYTES_PER_STEP, is_even, is_steady, keepers
from tb_gpudiag.wording.format import count

# With fewer steps, a cache that is still filling looks the same in any case, and the finding says so. But if
# it grew in three of them or more, and then no more, it may be full.
MANY_STEPS = 10
FEWEST_GROWN = 3

# A cache that has seen half of its keys meets the others less and less often. What grows in every step does
# not drift at all, and what grows at random, as a leak may, drifts as far as this once in 15 times.
SLOWING = -1.5

# What had a quick start, such as a pool that fills, and leaks evenly since, drifts as well. Memory then rises
# in the second half about as fast as in all, which a cache does not.
AS_FAST = 0.9

# Half of that shows the same where memory, too, rose slower in the second half. Of caches with 12 to 30 keys
# that come at random, each tenth does so in 20 to 32 steps and is no plateau. Of what is kept at random, one
# in 100 does.
SLOWING_TOO, SLOWER = -0.75, 0.65

# A leak pauses as it did before. It has stopped if it pauses for more than twice as long as ever, and for two
# steps: the last one's may not be seen yet.
PAUSE = 2
_FULL = "what is full looks the same"

_STATE = "it is the optimizer's state of parameters that it had before, which get their gradients later"

# An optimizer keeps up to three tensors of a parameter's size, as Adam with amsgrad does, and few keep more.
MOST_STATES = 8

# The first one or two may be from before the loop.
FEWEST_OLDEST = 3


def ending(memory: DeviceMemory) -> str:
    """Say why most of what grows may soon grow no more; "" if nothing shows that."""
    trend, own = memory.trend, keepers(memory)
    if trend is None or is_steady(memory):
        return ""
    if memory.ran_out:
        return _STATE if makes_state(memory) else ""
    if trend.steps < MANY_STEPS:
        return _stopped(memory)
    whole = sum(site.per_unit for site in own)
    levels_off = trend.later >= 0 and trend.later_high < LATER_SHARE * min(trend.per_unit, whole)
    if levels_off and not memory.misses_old_frees:
        return "memory grew less in the second half of the recording: what fills up looks the same"
    ends = [(site, why) for site in own if (why := _ends(memory, site))]
    if sum(site.per_unit for site, _ in ends) <= CAUSE_SHARE * whole:
        return ""
    return ends[0][1]


def makes_state(memory: DeviceMemory) -> bool:
    """Whether most of what grows is state that an optimizer makes once for each parameter."""
    own = keepers(memory)
    state = sum(site.per_unit for site in own if not site.replaced and _is_state(memory, site))
    return state > CAUSE_SHARE * sum(site.per_unit for site in own)


def let_go(memory: DeviceMemory) -> int:
    """Return how many bytes steps had kept that all went in the second half of the recording, when memory was
    as low as at first; 0 if they did not, or if more is kept since."""
    trend, kept, floor = memory.trend, memory.kept_bytes, memory.floors.bytes
    if trend is None or trend.unit != "step" or trend.steps < MANY_STEPS or is_steady(memory):
        return 0
    low = np.flatnonzero(kept <= LEAST_BYTES_PER_STEP)
    last, first = int(low[-1]), int(np.argmin(memory.floors.excused))
    before = int(kept[:last].max(initial=0))
    as_low = floor[last] - floor[first] < LEAST_BYTES_PER_STEP * (last - first)
    return before if as_low and 2 * last >= len(kept) and before >= max(kept[-1], LEAST_BYTES_PER_STEP) else 0


def rises_now_and_then(memory: DeviceMemory) -> bool:
    """Whether the floor rose twice or more, in half of the steps at most, never fell, and has not stopped: it
    has not paused for longer. What changes in each step may be batches of any size. Notes know more: as many
    may have gone."""
    trend = memory.trend
    if trend is None or trend.unit != "step" or trend.steps < MANY_STEPS:
        return False
    if memory.is_noted or max(trend.per_unit, trend.earlier) < LEAST_BYTES_PER_STEP:
        return False
    change = np.diff(memory.floors.bytes[~memory.floors.excused])
    rose = np.flatnonzero(change >= LEAST_BYTES_PER_STEP)
    since_last = len(change) - 1 - int(rose[-1]) if len(rose) else 0
    return 1 < len(rose) <= len(change) / 2 and change.min() >= 0 and since_last < int(np.diff(rose).max())


def _ends(memory: DeviceMemory, site: GrowingSite) -> str:
    if site.replaced:
        return _begins_anew(memory, site)
    if is_kept(site):
        return ""
    pace = site.pace
    if pace.quiet >= PAUSE * (pace.longest_quiet + 1):
        return f"it has not grown in the last {count(pace.quiet, 'step')}: {_FULL}"
    if _slows(memory, site):
        return "it grows less and less: a cache that has seen most of its keys looks the same"
    if pace.oldest_gone >= FEWEST_OLDEST and not _rises_evenly(memory):
        return f"the {count(pace.oldest_gone, 'oldest allocation')} went: it is full, or dropped now and then"
    if _is_state(memory, site):
        return _STATE
    return ""


def _stopped(memory: DeviceMemory) -> str:
    """Say that a few steps kept something, and the last ones nothing; "" if they did."""
    change = np.diff(memory.floors.bytes[~memory.floors.excused])
    grew = np.flatnonzero(change >= LEAST_BYTES_PER_STEP)
    if memory.misses_old_frees or len(grew) < FEWEST_GROWN:
        return ""
    quiet, before = len(change) - 1 - int(grew[-1]), int(np.diff(grew).max(initial=1))
    return f"it has not grown in the last {count(quiet, 'step')}: {_FULL}" if quiet >= PAUSE * before else ""


def _slows(memory: DeviceMemory, site: GrowingSite) -> bool:
    """Whether the site's growth drifts towards the beginning, and memory's as well where frees of older
    memory are known."""
    trend, drift = memory.trend, site.pace.drift
    if trend is None or memory.misses_old_frees:
        return drift <= SLOWING
    later = trend.later / trend.per_unit if trend.per_unit > 0 else 0.0
    return (drift <= SLOWING and later < AS_FAST) or (drift <= SLOWING_TOO and later < SLOWER)


def _rises_evenly(memory: DeviceMemory) -> bool:
    """Whether the floor, which shows what is older as well, never fell and rises as fast at the end: nothing
    is full."""
    trend, floors = memory.trend, memory.floors
    if trend is None or memory.misses_old_frees or (np.diff(floors.bytes[~floors.excused]) < 0).any():
        return False
    return is_even(trend.low, trend.high, trend.later)


def _begins_anew(memory: DeviceMemory, site: GrowingSite) -> str:
    """What grows with the tokens of an answer, or in an episode, begins anew with the next one."""
    if memory.kept_since < KEPT_SINCE_START:
        return "this job's memory was as low shortly before: it begins anew now and then"
    steps = memory.steps_so_far
    if memory.floors.periods.unit == "step" and site.bytes < KEPT_SINCE_START * site.per_unit * steps:
        has = count(round(site.bytes / site.per_unit), "step")
        return f"it is as large as {has} make it, after {count(steps, 'step')}: it begins anew now and then"
    return ""


def _is_state(memory: DeviceMemory, site: GrowingSite) -> bool:
    """Whether an optimizer made when the recording began, or before, allocated it, and no parameters grow."""
    others = [one for one in keepers(memory) if one.phase not in (Phase.OPTIMIZER, Phase.BACKWARD)]
    made = memory.optimizers_made
    known = memory.has_modules and not len(made[made > 0])
    return site.phase is Phase.OPTIMIZER and known and not others and not _exceeds_state(memory, site)


def _exceeds_state(memory: DeviceMemory, site: GrowingSite) -> bool:
    """Whether most of it is more than a state can be of the parameters that were built with these sizes. Of
    those built before the recording, hardly one gets its first gradient in each step."""
    if not len(memory.built_sizes):
        return site.steps >= EACH_STEP * len(memory.floors.periods)
    built, kept = Counter[int](memory.built_sizes.tolist()), Counter[int](site.sizes.tolist())
    more = sum(size * n for size, n in kept.items() if 0 < MOST_STATES * built[size] < n)
    return more > CAUSE_SHARE * site.bytes
