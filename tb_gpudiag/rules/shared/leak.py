"""Leak detection for GD401 and GD405: does the memory floor rise for good, and what holds the memory?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.facts.memory.floor import Trend
from tb_gpudiag.facts.memory.sites import GrowingSite
from tb_gpudiag.rules.rule import Answer, CannotTell, Clear, Evidence, Finding, Fix, Place, Severity
from tb_gpudiag.rules.shared.leak_causes import cause_of, loss_of
from tb_gpudiag.rules.shared.lost_time import MOST_PLACES
from tb_gpudiag.rules.shared.memory_room import is_large
from tb_gpudiag.trace.events import NONE
from tb_gpudiag.wording.format import count
from tb_gpudiag.wording.quantity import Quantity, duration, number, share_of, size

# Jobs keep a number or two per step on purpose. 4 KiB per step are 4 GiB after a million steps.
LEAST_BYTES_PER_STEP = 4 * 2**10

# Not counting the first step. A line fits any two floors, and a third one confirms it.
FEWEST_STEPS = 3

# A cache that is still filling looks like a leak for as many steps as it has entries, and so does a list that
# is cleared now and then. With fewer steps than this the finding says so.
MANY_STEPS = 10

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

# A replaced allocation is a cache if it grows by the same amount in every step, within a tenth. Batches of
# changing sizes do not. Old traces have no addresses and do not show what is still alive, so there the floor
# itself has to rise this evenly.
EVEN_SHARE = 0.1

State = Literal["rising", "level", "plateau", "falling", "unclear"]


def state_of(memory: DeviceMemory) -> State | None:
    """Classify the floors of the steps; None if there are too few steps to tell."""
    trend = memory.trend
    if trend is None:
        return None
    if trend.steps < FEWEST_STEPS:
        return "rising" if _is_left_by_each_step(memory, trend.per_unit) else None
    least = LEAST_BYTES_PER_STEP / _unit_length(memory)
    if trend.high < 0 and -trend.per_unit >= least:
        return "falling"
    if max(trend.per_unit, trend.earlier) < least:
        return "level"
    if trend.per_unit < least:
        return "plateau" if _risen(memory) >= LEAST_BYTES_PER_STEP else "unclear"
    if trend.low > 0 and _is_confirmed(memory, trend):
        return "rising"
    return "plateau" if trend.later < LATER_SHARE * trend.per_unit else "unclear"


def _risen(memory: DeviceMemory) -> int:
    """Bytes that the last floor is above the first one, not counting excused steps."""
    compared = memory.floors.bytes[~memory.floors.excused]
    return int(compared[-1] - compared[0])


def _unit_length(memory: DeviceMemory) -> float:
    """Return 1 for steps. Without steps, return the seconds of the windows of time that replace them."""
    periods = memory.floors.periods
    return 1.0 if periods.unit == "step" else max(1e-9, float(periods.at[1] - periods.at[0]))


def _is_confirmed(memory: DeviceMemory, trend: Trend) -> bool:
    """Whether allocations explain the rise, or in old traces, whether the rise is even."""
    if not memory.allocations.paired:
        return _is_even(trend.low, trend.high, trend.per_unit)
    return sum(site.per_unit for site in keepers(memory)) >= EXPLAINED_SHARE * trend.per_unit


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


def keepers(memory: DeviceMemory) -> list[GrowingSite]:
    """Sites that raise the floor, fastest first.

    They hold more and more, some of it for two steps or longer, or what they hold is replaced evenly by
    larger allocations.
    """
    return [site for site in memory.sites if _keeps(site)]


def _keeps(site: GrowingSite) -> bool:
    if site.replaced:
        return _is_even(site.low, site.high, site.per_unit)
    return site.old_count > 0 and site.count_later >= LATER_SHARE * site.count_per_unit


def _is_even(low: float, high: float, slope: float) -> bool:
    return 0 <= high - low <= EVEN_SHARE * slope


def look_for_leak(memories: list[DeviceMemory], *, has_modules: bool) -> Answer:
    """Report the devices, at least one, whose memory floor rises for good.

    has_modules: the recording shows which modules allocated.
    """
    judged = [(memory, state_of(memory)) for memory in memories]
    found = [_finding(memory, has_modules) for memory, state in judged if state == "rising"]
    if found:
        return found
    if all(state is None for _, state in judged):
        return _too_few_steps(memories)
    unexplained = [memory for memory, state in judged if state == "unclear" and _rises(memory)]
    if unexplained:
        return CannotTell(
            "; ".join(_level(memory, "rising") for memory in unexplained)
            + ", and no line keeps more and more: batches of changing sizes would look the same",
            "Record more steps, with with_stack=True and profile_memory=True.",
        )
    return Clear("; ".join(_level(memory, state) for memory, state in judged if state))


def _too_few_steps(memories: list[DeviceMemory]) -> CannotTell:
    steps = max(memory.trend.steps if memory.trend else 0 for memory in memories)
    return CannotTell(
        f"telling a leak from a warm-up takes {FEWEST_STEPS} steps after the first one, and the recording "
        f"has {count(steps)}",
        "Record five steps or more, marked by prof.step(): schedule(wait=1, warmup=2, active=6). The history "
        "of a memory snapshot must be as long (max_entries).",
    )


def _rises(memory: DeviceMemory) -> bool:
    return memory.trend is not None and memory.trend.low > 0


def leak_sentences(memories: Sequence[DeviceMemory]) -> list[str]:
    """Sentences for a verdict about the leaks that end the job."""
    found = []
    for memory in memories:
        trend = memory.trend
        if trend is None or not _ends_the_job(memory, trend):
            continue
        until_full = _until_full(memory, trend)
        ends = f" and is full after {_about(until_full)}" if until_full else ""
        found.append(f"{_subject(memory)} grows by {size(trend.per_unit, 'per step')}{ends}.")
    return found


def _ends_the_job(memory: DeviceMemory, trend: Trend) -> bool:
    """Whether memory is full within the horizon. Not decided from two floors, or without steps."""
    sure = trend.steps >= FEWEST_STEPS and state_of(memory) == "rising"
    return sure and trend.unit == "step" and is_large(memory, trend.per_unit)


def _level(memory: DeviceMemory, state: State) -> str:
    trend = memory.trend
    assert trend is not None  # a state needs one
    change = _risen(memory) if state == "plateau" else trend.end_bytes - trend.start_bytes
    said = {
        "level": "the memory floor is level",
        "plateau": "the memory floor rose and then stayed level",
        "falling": "the memory floor falls",
        "unclear": "the memory floor changes without a trend",
        "rising": "the memory floor rises",
    }[state]
    return f"{memory.name}: {said} ({_signed(change)} over {_steps(trend)})"


def _subject(memory: DeviceMemory) -> str:
    return "Host memory" if memory.is_cpu else f"{memory.name} memory"


def _steps(trend: Trend, suffix: str = "") -> Quantity:
    return number(trend.steps, "step" if trend.unit == "step" else "window", suffix=suffix)


def _signed(change: float) -> str:
    return f"{'+' if change >= 0 else '-'}{size(abs(change))}"


def _finding(memory: DeviceMemory, has_modules: bool) -> Finding:
    trend, sites = memory.trend, keepers(memory)
    assert trend is not None  # a rising floor has one
    cause = cause_of(sites, has_modules=has_modules)
    named = f": {cause.name}" if cause.name else ""
    until_full = _until_full(memory, trend)
    ends = f" At this rate memory is full after {_about(until_full)}." if until_full else ""
    if trend.steps < MANY_STEPS:
        ends += (
            " So few steps were recorded that a cache still filling, or a list cleared later, would look the "
            "same."
        )
    return Finding(
        title=f"{_subject(memory)} grows by {size(trend.per_unit, f'per {trend.unit}')}{named}",
        summary="The memory still allocated "
        + ("between steps" if trend.unit == "step" else "when work is done")
        + f" keeps rising. {cause.summary}{ends}",
        fix=Fix(cause.fix, cause.code, cause.url),
        cost_bytes=max(0, round(trend.end_bytes - trend.start_bytes)),
        cost_bytes_per_step=trend.per_unit if trend.unit == "step" else 0.0,
        memory_device=memory.device,
        evidence=list(_evidence(memory, trend, sites)),
        places=[_place(site) for site in sites[:MOST_PLACES]],
        severity=Severity.ERROR if _ends_the_job(memory, trend) else Severity.WARNING,
    )


def _evidence(memory: DeviceMemory, trend: Trend, sites: list[GrowingSite]) -> Iterator[Evidence]:
    low, high = size(trend.low), size(trend.high)
    spread = f"between {low} and {high}" if str(low) != str(high) else "the same every time"
    growth = size(trend.per_unit)
    yield Evidence(f"Growth per {trend.unit}", growth, (spread, _steps(trend, "compared")))
    yield Evidence(
        "Memory floor", size(trend.end_bytes, "at the end"), (size(trend.start_bytes, "at the start"),)
    )
    explained = sum(site.per_unit for site in sites)
    if explained:
        part = share_of(min(explained, trend.per_unit), trend.per_unit, "of the growth")
        yield Evidence("Growing allocations", part, (number(len(sites), "site"),))
        yield _largest_site(sites[0])
        loss = loss_of(sites)
        if loss is not None and loss.frame is not None:
            frame = loss.frame
            yield Evidence("Retained loss", f"allocated at {frame.file}:{frame.line} in {frame.function}")
    yield from _head_room(memory, trend)


def _largest_site(site: GrowingSite) -> Evidence:
    each = size(site.size_bytes, "each")
    details = (each, f"from {site.operator}") if site.operator else (each,)
    return Evidence("Largest growing site", number(site.count, "tensor"), details)


def _head_room(memory: DeviceMemory, trend: Trend) -> Iterator[Evidence]:
    if not memory.capacity_bytes:
        yield Evidence("Time until full", "unknown: the trace does not contain the memory's capacity")
    elif until_full := _until_full(memory, trend):
        at_most = "at most " if memory.curve.relative else ""
        room = size(memory.capacity_bytes - memory.peak.allocated_bytes)
        free = f"{at_most}{room} of {size(memory.capacity_bytes)} free at the peak"
        yield Evidence("Time until full", until_full, (free,))


def _until_full(memory: DeviceMemory, trend: Trend) -> Quantity | None:
    """Whole steps, or time, until memory is full at this rate; None if unknown."""
    left = memory.until_full
    if not left:
        return None
    return number(int(left), "step") if trend.unit == "step" else duration(left * 1e9)


def _about(until_full: Quantity) -> str:
    return f"about {until_full}" if until_full.value else "less than one step"


def _place(site: GrowingSite) -> Place:
    held = round(site.bytes)
    if site.frame is None:
        return Place(operator=site.operator, bytes=held)
    return Place(site.frame.file, site.frame.line, site.frame.function, site.operator, bytes=held)
