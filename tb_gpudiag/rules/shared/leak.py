"""Leak detection for GD401 and GD405: which devices' memory grows, what keeps it, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.facts.memory.floor import Trend
from tb_gpudiag.facts.memory.sites import GrowingSite
from tb_gpudiag.rules.answer import Evidence, Finding, Fix, RuleAnswer, Severity
from tb_gpudiag.rules.shared.kept_sites import is_boundless
from tb_gpudiag.rules.shared.leak_causes import Explained, loss_of
from tb_gpudiag.rules.shared.leak_holder import filling_sentence, holders_of, maker_sentences, places_of
from tb_gpudiag.rules.shared.leak_malloc import malloc_grows
from tb_gpudiag.rules.shared.leak_pace import MANY_STEPS, ending
from tb_gpudiag.rules.shared.leak_state import (
    FEWEST_STEPS,
    LIKELY_STEPS,
    SURE_STEPS,
    begins_early,
    causes,
    covers,
    filled_by_steps,
    fills,
    growth_per_unit,
    is_steady,
    keepers,
    may_fill,
    state_of,
    until_full,
)
from tb_gpudiag.rules.shared.lost_time import MOST_PLACES
from tb_gpudiag.rules.shared.no_leak import growth_text, no_leak, steps_text
from tb_gpudiag.rules.shared.out_of_memory import is_large
from tb_gpudiag.rules.shared.outer_step import may_end_with_update
from tb_gpudiag.rules.shared.unseen_leak import unseen_leaks
from tb_gpudiag.rules.shared.usual_causes import BOUNDLESS, GRAPH
from tb_gpudiag.wording.format import in_quotes
from tb_gpudiag.wording.quantity import Quantity, duration, number, share_of, size

_WHERE_FROM = {
    "step": "The recording marks no steps: they are inferred from the backward pass and the optimizer.",
    "repetition": (
        "The recording marks no steps: a repetition is what allocations repeat, such as a batch, an epoch "
        "or a token. What grows with the tokens of one sequence ends with it."
    ),
}

_NOT_PYTHONS = (
    "Python holds no tensors that explain it, but the process has got more memory all along: something in "
    "C++ keeps them, such as a list of TorchScript or an extension, or another thread."
)


def look_for_leak(memories: list[DeviceMemory]) -> RuleAnswer:
    """Report the devices, at least one, whose memory floor rises for good."""
    judged = [(memory, state_of(memory)) for memory in memories]
    rising = [memory for memory, state in judged if state == "rising"]
    found = [_finding(memory) for memory in rising if is_sure(memory) or is_likely(memory)]
    return found or unseen_leaks([memory for memory, state in judged if state]) or no_leak(judged)


def leak_sentences(memories: Sequence[DeviceMemory]) -> list[str]:
    """Sentences for a verdict about the leaks that end the job."""
    found = []
    for memory in memories:
        trend = memory.trend
        if trend is None or not _ends_the_job(memory, trend):
            continue
        full = _until_full(memory)
        ends = f" and is full after {_about(full)}" if full else ""
        if memory.ran_out:
            ends = " until it was full"
        found.append(f"{_subject(memory)} grows by {growth_text(trend, growth_per_unit(memory))}{ends}.")
    return found


def leak_headlines(memories: Sequence[DeviceMemory]) -> Iterator[str]:
    """Yield where a leak ends the job, if it is known when."""
    for memory in memories:
        trend = memory.trend
        if trend is not None and _ends_the_job(memory, trend) and _until_full(memory) is not None:
            yield f"Memory leak on {memory.name}"


def _ends_the_job(memory: DeviceMemory, trend: Trend) -> bool:
    """Whether memory ran out, or is full within the horizon.

    Not decided from two floors, or where a full buffer would look the same.
    """
    if trend.steps < FEWEST_STEPS or state_of(memory) != "rising" or not is_sure(memory):
        return False
    if memory.ran_out:
        return True
    return trend.unit == "step" and is_large(memory, growth_per_unit(memory))


def is_sure(memory: DeviceMemory) -> bool:
    """Whether what grows is no full buffer, for sure.

    A retained graph and a cache that is replaced by a larger one grow whatever was freed before them, and a
    full buffer does not fill the memory. A list that nothing is taken out of may be a full buffer: `del` and
    assignments are no calls, so no recording shows them. Which tensors came and went does, if it was noted.
    Graphs may be those of inner steps, whatever else is known.
    """
    if _may_end(memory):
        return False
    known = (
        memory.ran_out or covers(memory, SURE_STEPS) or not memory.misses_old_frees or _noted_to_grow(memory)
    )
    return known or 2 * _boundless(memory) > growth_per_unit(memory)


def _noted_to_grow(memory: DeviceMemory) -> bool:
    return is_steady(memory) or malloc_grows(memory)


def is_likely(memory: DeviceMemory) -> bool:
    """Whether only a buffer that was full before the recording, and is large or was not filled by the job's
    steps, would look like this."""
    early = begins_early(memory) and filled_by_steps(memory)
    return (covers(memory, LIKELY_STEPS) or early) and not _may_end(memory)


def _may_end(memory: DeviceMemory) -> bool:
    """Whether the optimizer's next step may free what grows, or it may soon grow no more."""
    if may_end_with_update(memory) or ending(memory):
        return True
    return (fills(memory) or may_fill(memory)) and not memory.ran_out


def _boundless(memory: DeviceMemory) -> float:
    """How much of the growth no full buffer explains, because its cause or its container drops no entry."""
    parts = causes(memory)
    certain = [site for part in parts for site in part.sites if part.cause in BOUNDLESS or is_boundless(site)]
    return sum(site.per_unit for site in certain)


def leaks_at_failure(memory: DeviceMemory) -> list[Explained]:
    """Return the leaks of a device on which an allocation failed and ended the job, the fastest first."""
    if not memory.ran_out or state_of(memory) != "rising" or _may_end(memory):
        return []
    return [part for part in causes(memory) if part.sites]


def _subject(memory: DeviceMemory) -> str:
    return "Host memory" if memory.is_cpu else f"{memory.name} memory"


def _finding(memory: DeviceMemory) -> Finding:
    trend, rate = memory.trend, growth_per_unit(memory)
    assert trend is not None  # a rising floor has one
    parts = causes(memory)
    names = " and ".join(part.cause.name for part in parts if part.cause.name)
    named = f": {names}" if names else ""
    return Finding(
        title=f"{_subject(memory)} grows by {growth_text(trend, rate)}{named}",
        summary=" ".join(_summary(memory, trend, parts)),
        fix=_fix(parts),
        cost_bytes=_grown_bytes(memory, trend),
        cost_bytes_per_step=rate if trend.unit == "step" else 0.0,
        memory_device=memory.device,
        sure=not any(_doubts(memory, trend)),
        evidence=list(_evidence(memory, trend, keepers(memory))),
        places=places_of(parts)[:MOST_PLACES],
        severity=Severity.ERROR if _ends_the_job(memory, trend) else Severity.WARNING,
    )


def _grown_bytes(memory: DeviceMemory, trend: Trend) -> int:
    """Return by how much memory grew in the recording, at its present rate and any earlier one."""
    first = max(int(np.argmin(memory.floors.excused)), memory.floors.last_rate)
    at, floor = memory.floors.periods.at, memory.floors.bytes[~memory.floors.excused]
    now = growth_per_unit(memory) * float(at[-1] - at[first])
    before = trend.start_bytes - float(floor[0]) if memory.floors.last_rate else 0.0
    return max(0, round(now + before))


def _summary(memory: DeviceMemory, trend: Trend, parts: list[Explained]) -> Iterator[str]:
    kept = "between steps" if trend.unit == "step" and memory.floors.periods.trains else "when work is done"
    yield f"The memory still allocated {kept} keeps rising. {parts[0].cause.summary}"
    if memory.floors.last_rate:
        yield "It grew at another rate before: the figures are those of the end of the recording."
    if memory.floors.periods.inferred:
        yield _WHERE_FROM["step" if memory.floors.periods.trains else "repetition"]
    if malloc_grows(memory) and parts[0].cause is not GRAPH:
        yield _NOT_PYTHONS
    yield from map(filling_sentence, holders_of(parts[0].sites)[:1])
    yield from maker_sentences(parts)
    for part in parts[1:]:
        yield f"{growth_text(trend, part.per_unit)} of it has another reason: {part.cause.summary}"
    full = _until_full(memory)
    if memory.ran_out:
        yield "It filled the memory until an allocation failed."
    elif full:
        yield f"At this rate memory is full after {_about(full)}."
    yield from _doubts(memory, trend)


def _doubts(memory: DeviceMemory, trend: Trend) -> Iterator[str]:
    """Say what harmless would look the same; nothing if the finding is certain."""
    if not is_sure(memory) and begins_early(memory):
        yield (
            "A buffer that was filled before the job's first step would look the same: frees of older memory "
            "are not recorded."
        )
    elif not is_sure(memory):
        yield (
            f"A buffer of more than {trend.steps} entries that was full before the recording would look the "
            "same: frees of older memory are not recorded."
        )
    if trend.steps < MANY_STEPS and not (memory.ran_out or _noted_to_grow(memory)):
        yield (
            "So few steps were recorded that a cache still filling, or a list cleared later, would look the "
            "same."
        )


def _fix(parts: list[Explained]) -> Fix:
    """Combine the fixes of all causes."""
    text, code = [part.cause.fix for part in parts], [part.cause.code for part in parts]
    return Fix(" ".join(text), "\n\n".join(code), parts[0].cause.url)


def _evidence(memory: DeviceMemory, trend: Trend, sites: list[GrowingSite]) -> Iterator[Evidence]:
    low, high = growth_text(trend, trend.low), growth_text(trend, trend.high)
    spread = f"between {low} and {high}" if str(low) != str(high) else "the same every time"
    rate = growth_per_unit(memory)
    compared = "found in the allocations" if memory.floors.periods.inferred else "compared"
    if rate != trend.per_unit:
        spread = f"the floor's own slope is {spread}"
    if trend.unit == "step":
        yield Evidence(f"Growth per {trend.word}", size(rate), (spread, steps_text(trend, compared)))
    else:
        yield Evidence("Growth", growth_text(trend, rate), (spread, steps_text(trend, compared)))
    seen = memory.floors.bytes[~memory.floors.excused]
    yield Evidence("Memory floor", size(int(seen[-1]), "at the end"), (size(int(seen[0]), "at the start"),))
    explained = sum(site.per_unit for site in sites)
    if explained:
        part = share_of(min(explained, rate), rate, "of the growth")
        yield Evidence("Growing allocations", part, (number(len(sites), "site"),))
        yield _largest_site(sites[0])
        loss = loss_of(sites)
        if loss is not None and loss.frame is not None:
            frame = loss.frame
            yield Evidence("Retained loss", f"allocated {frame.preposition} {in_quotes(str(frame))}")
    yield from _head_room(memory, trend)


def _largest_site(site: GrowingSite) -> Evidence:
    each = size(site.size_bytes, "each" if site.even else "each for most of it")
    details = (each, f"from {in_quotes(site.operator)}") if site.operator else (each,)
    return Evidence("Largest growing site", number(site.count, "tensor"), details)


def _head_room(memory: DeviceMemory, trend: Trend) -> Iterator[Evidence]:
    if not memory.capacity_bytes:
        yield Evidence("Time until full", "unknown: the trace does not contain the memory's capacity")
    elif full := _until_full(memory):
        at_most = "at most " if memory.curve.relative else ""
        room = size(memory.capacity_bytes - memory.peak.allocated_bytes)
        free = f"{at_most}{room} of {size(memory.capacity_bytes)} free at the peak"
        yield Evidence("Time until full", full, (free,))


def _until_full(memory: DeviceMemory) -> Quantity | None:
    """Whole steps, or time, until memory is full at this rate; None if unknown."""
    left = until_full(memory)
    if not left:
        return None
    trend = memory.trend
    assert trend is not None  # until_full needs one
    return number(int(left), trend.word) if trend.unit == "step" else duration(left * 1e9)


def _about(full: Quantity) -> str:
    return f"about {full}" if full.value else f"less than one {full.noun}"
