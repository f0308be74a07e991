"""Leak detection for GD401 and GD405: which devices' memory grows, how likely that is a leak, and what keeps
it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.facts.memory.repeats import MOST_MICRO_BATCHES
from tb_gpudiag.rules.answer import (
    CannotTell,
    Clear,
    Evidence,
    Finding,
    Fix,
    Place,
    RuleAnswer,
    Severity,
    place_at,
)
from tb_gpudiag.rules.shared.growth import (
    FEWEST_STEPS,
    LEAST_BYTES_PER_STEP,
    Growth,
    floor_state,
    growth_of,
    growth_text,
    until_full,
)
from tb_gpudiag.rules.shared.leak_causes import Explained, loss_of
from tb_gpudiag.rules.shared.leak_holder import filling_sentence, holders_of, places_of
from tb_gpudiag.rules.shared.lost_time import MOST_PLACES
from tb_gpudiag.rules.shared.out_of_memory import is_large
from tb_gpudiag.vocabulary.frames import Frame
from tb_gpudiag.wording.format import around, count, in_quotes
from tb_gpudiag.wording.quantity import Quantity, duration, number, share_of, size

# Above the first, growth is called a leak; above the second, likely one. Below the last, it is none.
SURE, LIKELY, UNLIKELY = 0.9, 0.5, 0.1

_WHERE_FROM = {
    "inferred step": (
        "The recording marks no steps: they are inferred from the backward pass and the optimizer."
    ),
    "repetition": (
        "The recording marks no steps: a repetition is what allocations repeat, such as a batch, an epoch "
        "or a token. What grows with the tokens of one sequence ends with it."
    ),
}

_FIVE_STEPS = (
    "Record five steps or more, marked by prof.step(): schedule(wait=5, warmup=2, active=6). The history of "
    "a memory snapshot must be as long (max_entries)."
)

_LONGER_HISTORY = (
    "Record the history of ten of the optimizer's steps or more, with a larger max_entries. Where nothing "
    f"trains, record more than {MOST_MICRO_BATCHES} batches: fewer may wait for a backward pass."
)

_NOTE_TENSORS = (
    "Note which tensors come and go: profile(schedule=tb_gpudiag.NotingTensors(schedule(wait=20, warmup=2, "
    "active=12)), profile_memory=True, with_stack=True). Or record the first 35 steps, best from before the "
    "job makes its model, or 100 steps: a leak goes on."
)

_TWICE = "Record twice as many steps: a leak goes on, and what is full, or dropped now and then, does not."


def look_for_leak(memories: list[DeviceMemory]) -> RuleAnswer:
    """Report the devices, at least one, whose memory likely grows for good."""
    known = list(filter(None, map(growth_of, memories)))
    if not known:
        return _too_few_steps(memories)
    found = [_finding(growth) for growth in known if growth.probability >= LIKELY]
    unsure = [growth for growth in known if growth.probability >= UNLIKELY]
    if found or not unsure:
        return found or Clear("; ".join(map(_level, known)))
    return CannotTell("; ".join(map(_unsure, unsure)), _how_to_be_sure(unsure), hint=_hint(unsure[0]))


def leak_sentences(memories: Sequence[DeviceMemory]) -> Iterator[str]:
    """Yield when leaks end the job, as far as that is known."""
    for growth in _ending(memories):
        if growth.memory.ran_out:
            yield f"{_subject(growth.memory)} grows until it is full."
        elif full := _until_full(growth):
            yield f"{_subject(growth.memory)} grows and is full after {_about(full)}."


def leak_headlines(memories: Sequence[DeviceMemory]) -> Iterator[str]:
    """Yield where a leak ends the job, and how fast it is."""
    return (f"Memory leak on {growth.memory.name}: {_rate(growth)}" for growth in _ending(memories))


def leaks_at_failure(memory: DeviceMemory) -> list[Explained]:
    """Return the leaks of a device on which an allocation failed and ended the job, the fastest first."""
    growth = growth_of(memory)
    if growth is None or not memory.ran_out or growth.probability < SURE:
        return []
    return [part for part in growth.causes if part.sites]


def _ending(memories: Sequence[DeviceMemory]) -> list[Growth]:
    return list(filter(_ends_the_job, filter(None, map(growth_of, memories))))


def _ends_the_job(growth: Growth) -> bool:
    """Whether memory ran out, or is full within the horizon, as far as steps show the rate."""
    if growth.probability < SURE:
        return False
    fills = growth.trend.unit == "step" and is_large(growth.memory, growth.per_unit)
    return growth.memory.ran_out or fills


def _subject(memory: DeviceMemory) -> str:
    return "Host memory" if memory.is_cpu else f"{memory.name} memory"


def _rate(growth: Growth) -> str:
    return growth_text(growth.trend, growth.per_unit)


def _finding(growth: Growth) -> Finding:
    memory, trend = growth.memory, growth.trend
    names = " and ".join(part.cause.name for part in growth.causes if part.cause.name)
    grows = "grows by" if growth.probability >= SURE else "likely leaks"
    return Finding(
        title=f"{_subject(memory)} {grows} {_rate(growth)}{around(': ', names)}",
        summary=" ".join(_summary(growth)),
        fix=_fix(growth.causes),
        cost_bytes=_grown_bytes(growth),
        cost_bytes_per_step=growth.per_unit if trend.unit == "step" else 0.0,
        memory_device=memory.device,
        sure=growth.probability >= SURE,
        evidence=list(_evidence(growth)),
        places=_places(growth),
        severity=Severity.ERROR if _ends_the_job(growth) else Severity.WARNING,
    )


def _places(growth: Growth) -> list[Place]:
    unseen = [place_at(frame) for frame in growth.unseen_frames[:1]]
    return (places_of(growth.causes) if growth.sites else unseen)[:MOST_PLACES]


def _grown_bytes(growth: Growth) -> int:
    """Return by how much memory grew in the recording, at its present rate and any earlier one."""
    floors, trend = growth.memory.floors, growth.trend
    first = max(int(np.argmin(floors.excused)), floors.last_rate)
    at, floor = floors.periods.at, floors.bytes[~floors.excused]
    before = trend.start_bytes - float(floor[0]) if floors.last_rate else 0.0
    return max(0, round(growth.per_unit * float(at[-1] - at[first]) + before))


def _summary(growth: Growth) -> Iterator[str]:
    memory, trend, parts = growth.memory, growth.trend, growth.causes
    kept = "between steps" if trend.unit == "step" and memory.floors.periods.trains else "when work is done"
    yield f"The memory still allocated {kept} keeps rising. {parts[0].cause.summary}"
    if growth.probability < SURE:
        yield f"Likely a leak, {in_ten(growth.probability)}: {growth.doubt} would look the same."
    if memory.floors.last_rate:
        yield "It grew at another rate before: the figures are those of the end of the recording."
    yield from filter(None, [_WHERE_FROM.get(trend.word, ""), _unseen(growth)])
    yield from map(filling_sentence, holders_of(parts[0].sites)[:1])
    for part in parts[1:]:
        yield f"{growth_text(trend, part.per_unit)} of it has another reason: {part.cause.summary}"
    full = _until_full(growth)
    if memory.ran_out:
        yield "It filled the memory until an allocation failed."
    elif full:
        yield f"At this rate memory is full after {_about(full)}."


def _unseen(growth: Growth) -> str:
    """Say where it is, if the trace shows no line that keeps it."""
    if growth.sites or not growth.memory.is_noted:
        return ""
    return (
        "The trace shows no line that keeps it: a thread that the job has started allocates it, or graphs "
        "have more and more nodes."
    )


def in_ten(probability: float) -> str:
    """`9 in 10`."""
    return f"{int(10 * probability)} in 10"


def _fix(parts: list[Explained]) -> Fix:
    """Combine the fixes of all causes."""
    text, code = [part.cause.fix for part in parts], [part.cause.code for part in parts]
    return Fix(" ".join(text), "\n\n".join(code), parts[0].cause.url)


def _evidence(growth: Growth) -> Iterator[Evidence]:
    memory, trend, sites = growth.memory, growth.trend, growth.sites
    low, high = growth_text(trend, trend.low), growth_text(trend, trend.high)
    spread = f"the floor's slope is between {low} and {high}" if low != high else "the same every time"
    compared = "found in the allocations" if memory.floors.periods.inferred else "compared"
    of_steps = (f"Growth per {trend.word}", size(growth.per_unit))
    label, rate = of_steps if trend.unit == "step" else ("Growth", _rate(growth))
    yield Evidence(label, rate, (spread, steps_text(growth, compared)))
    yield Evidence("A leak", in_ten(growth.probability), ("as often as in loops that looked like it",))
    seen = memory.floors.bytes[~memory.floors.excused]
    yield Evidence("Memory floor", size(int(seen[-1]), "at the end"), (size(int(seen[0]), "at the start"),))
    if sites:
        part = share_of(min(growth.kept, growth.per_unit), growth.per_unit, "of the growth")
        yield Evidence("Growing allocations", part, (number(len(sites), "site"),))
        each = size(sites[0].size_bytes, "each" if sites[0].even else "each for most of it")
        operator = (f"from {in_quotes(sites[0].operator)}",) if sites[0].operator else ()
        yield Evidence("Largest growing site", number(sites[0].count, "tensor"), (each, *operator))
        loss = loss_of(sites)
        if loss is not None and loss.frame is not None:
            frame = loss.frame
            yield Evidence("Retained loss", f"allocated {frame.preposition} {in_quotes(str(frame))}")
    yield from _head_room(growth)


def _head_room(growth: Growth) -> Iterator[Evidence]:
    memory = growth.memory
    if not memory.capacity_bytes:
        yield Evidence("Time until full", "unknown: the trace does not contain the memory's capacity")
    elif full := _until_full(growth):
        at_most = "at most " if memory.curve.relative else ""
        room = size(memory.capacity_bytes - memory.peak.allocated_bytes)
        free = f"{at_most}{room} of {size(memory.capacity_bytes)} free at the peak"
        yield Evidence("Time until full", full, (free,))


def _until_full(growth: Growth) -> Quantity | None:
    """Whole steps, or time, until memory is full at this rate; None if unknown."""
    left = until_full(growth.memory)
    if not left:
        return None
    unit = growth.trend
    return number(int(left), unit.word) if unit.unit == "step" else duration(left * 1e9)


def _about(full: Quantity) -> str:
    return f"about {full}" if full.value else f"less than one {full.noun}"


def _kept_where(growth: Growth) -> str:
    """`what is allocated in FUNCTION (FILE, defined at line 7)`, as far as that is known."""
    where = next(iter(_places(growth)), Place())
    if not where.function:
        return "what is allocated"
    frame = Frame(where.file, where.line, where.function, where.line_kind)
    return f"what is allocated {frame.where}"


def _unsure(growth: Growth) -> str:
    """Say what grows in the recording, how likely it is a leak, and what else it may be."""
    return (
        f"{_kept_where(growth)} raises {growth.memory.name} memory by {_rate(growth)} over "
        f"{steps_text(growth)}: a leak, {in_ten(growth.probability)}, or {growth.doubt}"
    )


def _hint(growth: Growth) -> str:
    where = _kept_where(growth).removeprefix("what is ")
    leak = f"a leak, {in_ten(growth.probability)}, or {growth.doubt}."
    return f"{growth.memory.name} memory grows by {_rate(growth)}, {where}: {leak}"


def _how_to_be_sure(unsure: Sequence[Growth]) -> str:
    plain = all(growth.memory.is_cpu and not growth.memory.is_noted for growth in unsure)
    return _NOTE_TENSORS if plain else _TWICE


def _level(growth: Growth) -> str:
    trend, state = growth.trend, floor_state(growth.memory)
    said = {
        "level": "the memory floor is level",
        "plateau": "the memory floor rose and then stayed level",
        "falling": "the memory floor falls",
        "unclear": "the memory floor changes without a trend",
        "rising": f"the memory floor rises, but this looks like {growth.doubt}",
    }[state or "unclear"]
    change = trend.end_bytes - trend.start_bytes
    sign = "+" if change >= 0 else "-"
    return f"{growth.memory.name}: {said} ({sign}{size(abs(change))} over {steps_text(growth)})"


def _too_few_steps(memories: list[DeviceMemory]) -> CannotTell:
    steps = max(memory.trend.steps if memory.trend else 0 for memory in memories)
    has = f"this recording has {count(steps)}"
    snapshots = all(memory.is_of_snapshot for memory in memories)
    if snapshots and not steps:
        has = "this history neither marks steps nor shows any that repeat"
    return CannotTell(
        "".join(map(_what_survives, memories))
        + f"leak detection needs {FEWEST_STEPS} steps after the first one; {has}",
        _LONGER_HISTORY if snapshots else _FIVE_STEPS,
    )


def _what_survives(memory: DeviceMemory) -> str:
    found = memory.survivors
    if found is None or found.bytes < LEAST_BYTES_PER_STEP:
        return ""
    site = found.frame or found.operator
    where = in_quotes(str(site)) if site else "one site"
    return (
        f"{where} keeps {size(found.bytes)} of {memory.name}: {count(found.count, 'allocation')}, made "
        "throughout the recording and none of them freed. A leak looks like this, and so does a buffer that "
        "fills; "
    )


def steps_text(growth: Growth, suffix: str = "") -> Quantity:
    return number(growth.trend.steps, growth.trend.word, suffix=suffix)
