"""Leak detection for GD401 and GD405: which devices' memory grows, what keeps it, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.facts.memory.floor import Trend
from tb_gpudiag.facts.memory.sites import GrowingSite
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
from tb_gpudiag.rules.rule import fix_code
from tb_gpudiag.rules.shared.leak_causes import BOUNDLESS, Explained, causes_of, loss_of
from tb_gpudiag.rules.shared.leak_holder import (
    call_of_holder,
    filling_sentence,
    holders_of,
    is_boundless,
    keeping_frame,
    retained_loss,
)
from tb_gpudiag.rules.shared.leak_state import (
    FEWEST_STEPS,
    LEAST_BYTES_PER_STEP,
    SURE_STEPS,
    FloorState,
    floor_allows,
    growth_per_unit,
    keepers,
    least_per_unit,
    repeats,
    replacers,
    risen_bytes,
    state_of,
    until_full,
)
from tb_gpudiag.rules.shared.lost_time import MOST_PLACES
from tb_gpudiag.rules.shared.out_of_memory import is_large
from tb_gpudiag.wording.format import count, in_quotes
from tb_gpudiag.wording.quantity import Quantity, duration, number, share_of, size

_CODE = fix_code("tb_gpudiag.rules.memory.memory_leak")

# A cache that is still filling looks like a leak for as many steps as it has entries, and so does a list that
# is cleared now and then. With fewer steps than this the finding says so.
MANY_STEPS = 10

# One or two frees may be missing because two threads used one address in the same instant. With this many,
# frees are really not recorded.
FEWEST_UNSEEN = 3

_WHERE_FROM = {
    "step": "The recording marks no steps: they are inferred from the backward pass and the optimizer.",
    "repetition": (
        "The recording marks no steps: a repetition is what allocations repeat, such as a batch, an epoch "
        "or a token. What grows with the tokens of one sequence ends with it."
    ),
}

_FIVE_STEPS = (
    "Record five steps or more, marked by prof.step(): schedule(wait=5, warmup=2, active=6). The history of "
    "a memory snapshot must be as long (max_entries)."
)

_HOW_TO_BE_SURE = (
    "To be sure, record from the job's first step, for more steps than a buffer has entries: a leak goes on. "
    "Or compare the process's resident memory (RSS) some hundred steps apart: a leak raises it."
)


def look_for_leak(memories: list[DeviceMemory]) -> RuleAnswer:
    """Report the devices, at least one, whose memory floor rises for good."""
    judged = [(memory, state_of(memory)) for memory in memories]
    found = [_finding(memory) for memory, state in judged if state == "rising"]
    return found or _no_leak(judged)


def _no_leak(judged: list[tuple[DeviceMemory, FloorState | None]]) -> RuleAnswer:
    """Say why no floor rises for good, or why that cannot be told."""
    if all(state is None for _, state in judged):
        return _too_few_steps([memory for memory, _ in judged])
    unexplained = [memory for memory, state in judged if state == "unclear" and _rises(memory)]
    if unexplained:
        return _not_explained(unexplained)
    known = [(memory, state) for memory, state in judged if state]
    contradicted = [_keeps_but(memory, state) for memory, state in known if _keeps_anyway(memory)]
    if contradicted:
        return CannotTell(
            "; ".join(contradicted),
            "Record more steps: a list that is cleared now and then looks the same.",
        )
    return Clear("; ".join(_level(memory, state) for memory, state in known))


def _not_explained(memories: list[DeviceMemory]) -> CannotTell:
    """Say why floors that rise are not a leak for sure."""
    rising = "; ".join(_level(memory, "rising") for memory in memories)
    if not all(map(repeats, memories)):
        return CannotTell(
            f"{rising}, but the recording does not show three repetitions: one long step looks the same",
            _FIVE_STEPS,
        )
    if any(site.in_optimizer for memory in memories for site in memory.sites):
        return CannotTell(
            f"{rising}, and the optimizer's own state grows, as L-BFGS fills its history (history_size)",
            "Record later steps, when the history is full.",
        )
    replacing = [site for memory in memories for site in replacers(memory)]
    if replacing:
        return CannotTell(
            f"{rising}, but {_replaces(replacing[0])}, and this recording does not show frees of memory that "
            "was allocated before it",
            _HOW_TO_BE_SURE,
        )
    unseen = sum(len(memory.allocations.unseen_free) for memory in memories)
    if unseen >= FEWEST_UNSEEN:
        return CannotTell(
            f"{rising}, but {count(unseen, 'allocation')} were freed without the recording showing it: the "
            "profiler does not see threads that the job starts itself",
            "Compare the process's resident memory (RSS) some hundred steps apart: a leak raises it.",
        )
    return CannotTell(
        f"{rising}, and no line keeps more and more: batches of changing sizes would look the same",
        "Record more steps, with with_stack=True and profile_memory=True.",
    )


def _replaces(site: GrowingSite) -> str:
    if site.holder is not None and (site.holder.direct or site.remover is None):
        return f"{call_of_holder(site.holder)} fills a container that may drop its oldest entries"
    assert site.remover is not None  # replacers have one of both
    return f"{site.remover} takes as many entries out of a container"


def _keeps_anyway(memory: DeviceMemory) -> bool:
    """Whether "Growing allocations" lists lines that the floor may hide: they do not replace older memory."""
    kept = sum(site.per_unit for site in memory.sites if not site.in_optimizer)
    return kept >= least_per_unit(memory) and (floor_allows(memory, kept) or memory.misses_old_frees)


def _keeps_but(memory: DeviceMemory, state: FloorState) -> str:
    site = next(site for site in memory.sites if not site.in_optimizer)
    where = str(site.frame or site.operator or "one site")
    assert memory.trend is not None  # a state needs one
    return f"{_level(memory, state)}, but {where} keeps more and more: {_growth(memory.trend, site.per_unit)}"


def _unit(memory: DeviceMemory) -> str:
    return memory.floors.periods.unit


def _too_few_steps(memories: list[DeviceMemory]) -> CannotTell:
    steps = max(memory.trend.steps if memory.trend else 0 for memory in memories)
    return CannotTell(
        "".join(map(_what_survives, memories))
        + f"telling a leak from a warm-up takes {FEWEST_STEPS} steps after the first one, and the recording "
        f"has {count(steps)}",
        _FIVE_STEPS,
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


def _rises(memory: DeviceMemory) -> bool:
    return memory.trend is not None and memory.trend.low > 0


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
        found.append(f"{_subject(memory)} grows by {_growth(trend, growth_per_unit(memory))}{ends}.")
    return found


def leak_headlines(memories: Sequence[DeviceMemory]) -> Iterator[str]:
    """Yield where a leak ends the job, if it is known when."""
    for memory in memories:
        trend = memory.trend
        if trend is not None and _ends_the_job(memory, trend) and _until_full(memory) is not None:
            yield f"Memory leak on {memory.name}"


def _ends_the_job(memory: DeviceMemory, trend: Trend) -> bool:
    """Whether memory ran out, or is full within the horizon.

    Not decided from two floors, without steps, or where the recording may miss frees.
    """
    if trend.steps < FEWEST_STEPS or state_of(memory) != "rising" or _doubt(memory):
        return False
    if memory.ran_out:
        return True
    return trend.unit == "step" and is_large(memory, growth_per_unit(memory))


def _doubt(memory: DeviceMemory) -> str:
    """Say why what grows may be harmless; "" if it is a leak for sure.

    A retained graph and a cache that is replaced by a larger one grow whatever was freed before them, and a
    full buffer does not fill the memory. A list that nothing is taken out of may be a full buffer: `del` and
    assignments are no calls, so no recording shows them.
    """
    rate, trend = growth_per_unit(memory), memory.trend
    long = trend is not None and trend.unit == "step" and trend.steps >= SURE_STEPS
    if memory.ran_out or long or not memory.misses_old_frees or 2 * _boundless(memory) > rate:
        return ""
    recorder = "PyTorch's CPU profiler" if memory.is_cpu else "this history"
    return (
        f"It may be harmless: {recorder} does not show frees of memory that was allocated before the "
        "recording, so a full buffer that replaces its oldest entries (a deque, a replay buffer, a list that "
        "`del` or an assignment shortens) looks the same"
        + (", and so do tensors that another thread frees." if memory.is_cpu else ".")
    )


def _boundless(memory: DeviceMemory) -> float:
    """How much of the growth no full buffer explains, because its cause or its container drops no entry."""
    parts = _causes(memory)
    certain = [site for part in parts for site in part.sites if part.cause in BOUNDLESS or is_boundless(site)]
    return sum(site.per_unit for site in certain)


def _causes(memory: DeviceMemory) -> list[Explained]:
    return causes_of(keepers(memory), has_modules=memory.has_modules)


def leaks_at_failure(memory: DeviceMemory) -> list[Explained]:
    """Return the leaks of a device on which an allocation failed and ended the job, the fastest first."""
    if not memory.ran_out or state_of(memory) != "rising":
        return []
    return [part for part in _causes(memory) if part.sites]


def _level(memory: DeviceMemory, state: FloorState) -> str:
    trend = memory.trend
    assert trend is not None  # a state needs one
    change = risen_bytes(memory) if state == "plateau" else trend.end_bytes - trend.start_bytes
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
    return number(trend.steps, trend.word, suffix=suffix)


def _signed(change: float) -> str:
    return f"{'+' if change >= 0 else '-'}{size(abs(change))}"


def _growth(trend: Trend, per_unit: float) -> str:
    """`7 MiB per step`. Without steps, what was seen: `7 MiB in 40 ms`."""
    if trend.unit == "step":
        return str(size(per_unit, f"per {trend.word}"))
    seen_ns = trend.end_ns - trend.start_ns
    return f"{size(per_unit * seen_ns / 1e9)} in {duration(seen_ns)}"


def _finding(memory: DeviceMemory) -> Finding:
    trend, rate, doubt = memory.trend, growth_per_unit(memory), _doubt(memory)
    assert trend is not None  # a rising floor has one
    parts = _causes(memory)
    names = " and ".join(part.cause.name for part in parts if part.cause.name)
    named = f": {names}" if names else ""
    grows = "seems to grow" if doubt else "grows"
    return Finding(
        title=f"{_subject(memory)} {grows} by {_growth(trend, rate)}{named}",
        summary=" ".join(_summary(memory, trend, parts, doubt)),
        fix=_fix(parts, doubt),
        cost_bytes=_grown_bytes(memory, trend),
        cost_bytes_per_step=rate if trend.unit == "step" else 0.0,
        memory_device=memory.device,
        sure=not doubt,
        evidence=list(_evidence(memory, trend, keepers(memory))),
        places=_places(parts)[:MOST_PLACES],
        severity=Severity.ERROR if _ends_the_job(memory, trend) else Severity.WARNING,
    )


def _grown_bytes(memory: DeviceMemory, trend: Trend) -> int:
    """Return by how much memory grew in the recording, at its present rate and any earlier one."""
    first = max(int(np.argmin(memory.floors.excused)), memory.floors.last_rate)
    at, floor = memory.floors.periods.at, memory.floors.bytes[~memory.floors.excused]
    now = growth_per_unit(memory) * float(at[-1] - at[first])
    before = trend.start_bytes - float(floor[0]) if memory.floors.last_rate else 0.0
    return max(0, round(now + before))


def _summary(memory: DeviceMemory, trend: Trend, parts: list[Explained], doubt: str) -> Iterator[str]:
    kept = "between steps" if trend.unit == "step" and memory.floors.periods.trains else "when work is done"
    yield f"The memory still allocated {kept} keeps rising. {parts[0].cause.summary}"
    if memory.floors.last_rate:
        yield "It grew at another rate before: the figures are those of the end of the recording."
    if memory.floors.periods.inferred:
        yield _WHERE_FROM["step" if memory.floors.periods.trains else "repetition"]
    yield from map(filling_sentence, holders_of(parts[0].sites)[:1])
    for part in parts[1:]:
        yield f"{_growth(trend, part.per_unit)} of it has another reason: {part.cause.summary}"
    full = _until_full(memory)
    if memory.ran_out:
        yield "It filled the memory until an allocation failed."
    elif full:
        yield f"At this rate memory is full after {_about(full)}."
    if trend.steps < MANY_STEPS:
        yield (
            "So few steps were recorded that a cache still filling, or a list cleared later, would look the "
            "same."
        )
    if doubt:
        yield doubt


def _fix(parts: list[Explained], doubt: str) -> Fix:
    """Combine the fixes of all causes; if it may be no leak, how to be sure comes first."""
    text, code = [part.cause.fix for part in parts], [part.cause.code for part in parts]
    if doubt:
        text, code = [_HOW_TO_BE_SURE, *text], [_CODE["rss"], *code]
    return Fix(" ".join(text), "\n\n".join(code), parts[0].cause.url)


def _in_turn(parts: list[Explained]) -> list[GrowingSite]:
    """Return the largest site of each cause, then the others, fastest first."""
    first = [part.sites[0] for part in parts if part.sites]
    others = [site for part in parts for site in part.sites if site not in first]
    return [*first, *sorted(others, key=lambda site: -site.per_unit)]


def _evidence(memory: DeviceMemory, trend: Trend, sites: list[GrowingSite]) -> Iterator[Evidence]:
    low, high = _growth(trend, trend.low), _growth(trend, trend.high)
    spread = f"between {low} and {high}" if str(low) != str(high) else "the same every time"
    rate = growth_per_unit(memory)
    compared = "found in the allocations" if memory.floors.periods.inferred else "compared"
    if rate != trend.per_unit:
        spread = f"the floor's own slope is {spread}"
    if trend.unit == "step":
        yield Evidence(f"Growth per {trend.word}", size(rate), (spread, _steps(trend, compared)))
    else:
        yield Evidence("Growth", _growth(trend, rate), (spread, _steps(trend, compared)))
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


def _places(parts: list[Explained]) -> list[Place]:
    """Where it is kept, if the recording shows that: the call that fills a container, or the loss that holds
    a graph. Then where it is allocated."""
    sites = _in_turn(parts)
    loss, kept_at = retained_loss(parts[0]), keeping_frame(parts[0])
    if kept_at is None:
        first = []
    elif loss is not None and loss.frame == kept_at:
        first = [_place(loss)]
    else:
        first = [place_at(kept_at, bytes=round(parts[0].bytes))]
    return first + [place for site in sites if (place := _place(site)) not in first]


def _place(site: GrowingSite) -> Place:
    held = round(site.bytes)
    return place_at(site.frame, operator=site.operator, bytes=held)
