"""What GD401 and GD405 share: whether a floor rises for good, what keeps it up, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.facts.memory.floor import Trend
from tb_gpudiag.facts.memory.sites import GrowingSite
from tb_gpudiag.rules.rule import Answer, CannotTell, Clear, Evidence, Finding, Fix, Place, Severity
from tb_gpudiag.rules.shared.leak_causes import cause_of, loss_of
from tb_gpudiag.rules.shared.lost_time import MOST_PLACES
from tb_gpudiag.rules.shared.memory_room import is_large
from tb_gpudiag.trace.events import NONE
from tb_gpudiag.wording.format import count, share, size_bytes, time_ns

# Jobs keep a number or two of each step on purpose: 4 KiB a step are 4 GiB after a million steps.
LEAST_BYTES_PER_STEP = 4 * 2**10

# After the first step: two floors have a line through them whatever they are, and a third one confirms it.
FEWEST_STEPS = 3

# A cache that still fills looks like a leak for as many steps as it has entries, and so does a list that is
# emptied now and then. Most recordings are shorter than these: there it is said.
MANY_STEPS = 10

# With two floors there is another witness: each of the three steps has left the same allocations behind, to
# the recording's end, and these make up all of the rise but for a tenth.
LEFT_SHARE = 0.9

# A plateau (a cache that has filled, an optimizer's state) has grown before and does no more: of what is kept
# for good, the number grows in the second half of the recording at half its usual rate or more.
LATER_SHARE = 0.5

# What raises the floor is there to be seen: more and more allocations of one site that are alive two steps
# later, or one that is replaced by a larger one in every step. If that is less than half of the rise, batches
# of changing sizes only look like one.
EXPLAINED_SHARE = 0.5

# What is replaced by a larger one is a cache if it grows alike in every step, within a tenth of it: batches
# of changing sizes do not. Old traces have no addresses, so nothing tells what is still alive: there the
# floor itself has to rise so.
EVEN_SHARE = 0.1

State = Literal["rising", "level", "plateau", "falling", "unclear"]


def state_of(memory: DeviceMemory) -> State | None:
    """What the floors of the steps do; None with too few of them, or none that say anything."""
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
    if trend.low > 0 and _is_confirmed(memory):
        return "rising"
    return "plateau" if trend.later < LATER_SHARE * trend.per_unit else "unclear"


def _risen(memory: DeviceMemory) -> int:
    """By how much the last floor is higher than the first that is not excused."""
    compared = memory.floors.bytes[~memory.floors.excused]
    return int(compared[-1] - compared[0])


def _unit_length(memory: DeviceMemory) -> float:
    """Of a step 1; of a window of time, which stands for a step where none were recorded, its seconds."""
    slices = memory.floors.periods
    return 1.0 if slices.unit == "step" else max(1e-9, float(slices.at[1] - slices.at[0]))


def _is_confirmed(memory: DeviceMemory) -> bool:
    trend = memory.trend
    assert trend is not None
    if not memory.allocations.paired:
        return _is_even(trend.low, trend.high, trend.per_unit)
    return sum(site.per_unit for site in keepers(memory)) >= EXPLAINED_SHARE * trend.per_unit


def _is_left_by_each_step(memory: DeviceMemory, slope: float) -> bool:
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
    """The sites that raise the floor, fastest first: they hold ever more, some of it for two steps or more,
    or what they hold is replaced evenly."""
    return [site for site in memory.sites if _keeps(site)]


def _keeps(site: GrowingSite) -> bool:
    if site.replaced:
        return _is_even(site.low, site.high, site.per_unit)
    return site.old_count > 0 and site.count_later >= LATER_SHARE * site.count_per_unit


def _is_even(low: float, high: float, slope: float) -> bool:
    return 0 <= high - low <= EVEN_SHARE * slope


def look_for_leak(facts: Facts, memories: list[DeviceMemory]) -> Answer:
    """What the floors of these devices (at least one) say."""
    states = {memory.device: state_of(memory) for memory in memories}
    found = [_finding(facts, memory) for memory in memories if states[memory.device] == "rising"]
    if found:
        return found
    if all(state is None for state in states.values()):
        steps = max(memory.trend.steps if memory.trend else 0 for memory in memories)
        return CannotTell(
            f"it takes {FEWEST_STEPS} steps after the first one to tell a leak from a warm-up, and "
            f"{count(steps)} of them can be compared",
            "Record five steps or more, marked by prof.step(): schedule(wait=1, warmup=2, active=6). The "
            "history of a memory snapshot must be as long (max_entries).",
        )
    unexplained = [memory for memory in memories if states[memory.device] == "unclear" and _rises(memory)]
    if unexplained:
        return CannotTell(
            "; ".join(_level(memory, "rising") for memory in unexplained)
            + ", and no line is seen to keep ever more: batches of changing sizes would look the same",
            "Record more steps, with with_stack=True and profile_memory=True.",
        )
    return Clear("; ".join(_level(memory, state) for memory in memories if (state := states[memory.device])))


def _rises(memory: DeviceMemory) -> bool:
    return memory.trend is not None and memory.trend.low > 0


def leak_sentences(facts: Facts) -> list[str]:
    """For a verdict: the leaks that end the job."""
    found = []
    for memory in facts.memory:
        trend = memory.trend
        if trend is None or not _ends_the_job(memory, trend):
            continue
        what = "memory of the host" if memory.is_cpu else f"memory of {memory.name}"
        until_full = _until_full(memory, trend)
        ends = f", and is full after {until_full}" if until_full else ""
        found.append(f"The {what} grows by {size_bytes(trend.per_unit)} in each step{ends}.")
    return found


def _ends_the_job(memory: DeviceMemory, trend: Trend) -> bool:
    """Not of two floors only, and not where steps are not known."""
    sure = trend.steps >= FEWEST_STEPS and state_of(memory) == "rising"
    return sure and trend.unit == "step" and is_large(memory, trend.per_unit)


def _level(memory: DeviceMemory, state: State) -> str:
    trend = memory.trend
    assert trend is not None
    change = _risen(memory) if state == "plateau" else trend.end_bytes - trend.start_bytes
    said = {
        "level": "its floor is level",
        "plateau": "its floor rose, and stayed",
        "falling": "its floor falls",
        "unclear": "its floor changes without a direction",
        "rising": "its floor rises",
    }[state]
    return f"{memory.name}: {said} ({_signed(change)} over {count(trend.steps, _unit(trend))})"


def _the(memory: DeviceMemory) -> str:
    return "The host" if memory.is_cpu else memory.name


def _unit(trend: Trend) -> str:
    return "step" if trend.unit == "step" else "window"


def _signed(size: float) -> str:
    return f"{'+' if size >= 0 else '-'}{size_bytes(abs(size))}"


def _finding(facts: Facts, memory: DeviceMemory) -> Finding:
    trend, sites = memory.trend, keepers(memory)
    assert trend is not None
    cause = cause_of(sites, with_modules=facts.recorded.stacks or facts.trace.kind == "snapshot")
    growth = trend.per_unit
    per_step = growth if trend.unit == "step" else 0.0
    rate = f"{size_bytes(growth)} more {'in each step' if per_step else 'a second'}"
    named = f": {cause.name}" if cause.name else ""
    until_full = _until_full(memory, trend)
    ends = f" At this rate it is full after {until_full}." if until_full else ""
    if trend.steps < MANY_STEPS:
        ends += " So few steps were recorded that what still fills, or is emptied later, would look the same."
    return Finding(
        title=f"{_the(memory)} holds {rate}{named}",
        summary="What is left in use when "
        + ("a step" if per_step else "work")
        + f" has given back what it took rises all the time. {cause.summary}{ends}",
        fix=Fix(cause.fix, cause.code, cause.url),
        cost_bytes=max(0, round(trend.end_bytes - trend.start_bytes)),
        cost_bytes_per_step=per_step,
        memory_device=memory.device,
        evidence=list(_evidence(memory, trend, sites)),
        places=[_place(site) for site in sites[:MOST_PLACES]],
        severity=Severity.ERROR if _ends_the_job(memory, trend) else Severity.WARNING,
    )


def _evidence(memory: DeviceMemory, trend: Trend, sites: list[GrowingSite]) -> Iterator[Evidence]:
    each = "step" if trend.unit == "step" else "second"
    low, high = size_bytes(trend.low), size_bytes(trend.high)
    sure = f"between {low} and {high}" if low != high else "the same every time"
    yield Evidence(
        f"growth a {each}",
        f"{size_bytes(trend.per_unit)}, {sure} ({count(trend.steps, _unit(trend))})",
    )
    yield Evidence(
        "floor", f"{size_bytes(trend.start_bytes)} at first, {size_bytes(trend.end_bytes)} at last"
    )
    explained = sum(site.per_unit for site in sites)
    if explained:
        most = min(1.0, explained / trend.per_unit)
        yield Evidence("explained by its allocations", f"{share(most)}, {count(len(sites), 'site')}")
        first = sites[0]
        what = f"{count(first.count, 'tensor')} of {size_bytes(first.size_bytes)}"
        yield Evidence("most of it", f"{what} from {first.operator}" if first.operator else what)
        loss = loss_of(sites)
        if loss is not None and loss.frame is not None:
            frame = loss.frame
            yield Evidence("a loss is kept too, made at", f"{frame.file}:{frame.line} in {frame.function}")
    if not memory.capacity_bytes:
        yield Evidence("until it is full", "not known: the trace does not say how much there is")
    elif until_full := _until_full(memory, trend):
        room = size_bytes(memory.capacity_bytes - memory.peak.allocated_bytes)
        at_most = "at most " if memory.curve.relative else ""
        left = f"{at_most}{room} of {size_bytes(memory.capacity_bytes)} are left at the peak"
        yield Evidence("until it is full", f"{until_full}: {left}")


def _until_full(memory: DeviceMemory, trend: Trend) -> str:
    """In steps, or in time; empty where it is not known."""
    left = memory.until_full
    if not left:
        return ""
    return _about(left) if trend.unit == "step" else f"about {time_ns(left * 1e9)}"


def _about(steps: float) -> str:
    return "less than a step" if steps < 1 else f"about {count(int(steps), 'step')}"


def _place(site: GrowingSite) -> Place:
    size = round(site.bytes)
    if site.frame is None:
        return Place(operator=site.operator, bytes=size)
    return Place(site.frame.file, site.frame.line, site.frame.function, site.operator, bytes=size)
