"""Why GD401 and GD405 find no leak for sure: memory does not grow, or the recording does not show whether it
does."""

from __future__ import annotations

from collections.abc import Sequence

from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.facts.memory.floor import Trend
from tb_gpudiag.facts.memory.repeats import MOST_MICRO_BATCHES
from tb_gpudiag.facts.memory.sites import GrowingSite
from tb_gpudiag.rules.answer import CannotTell, Clear
from tb_gpudiag.rules.shared.kept_sites import NOTED_KEPT, is_filling, is_replaced
from tb_gpudiag.rules.shared.leak_holder import call_of_holder, places_of
from tb_gpudiag.rules.shared.leak_malloc import malloc_is_level
from tb_gpudiag.rules.shared.leak_pace import ending, let_go, rises_now_and_then
from tb_gpudiag.rules.shared.leak_state import (
    FEWEST_STEPS,
    LEAST_BYTES_PER_STEP,
    FloorState,
    begins_early,
    causes,
    fills,
    floor_allows,
    growth_per_unit,
    is_collected,
    is_dropped,
    keepers,
    least_per_unit,
    may_fill,
    repeats,
    replacers,
    risen_bytes,
)
from tb_gpudiag.rules.shared.outer_step import how_to_see_updates, may_end_with_update, outer_step_reason
from tb_gpudiag.rules.shared.unseen_leak import unseen_growth
from tb_gpudiag.vocabulary.frames import Frame
from tb_gpudiag.wording.format import count, in_quotes, share
from tb_gpudiag.wording.quantity import Quantity, duration, number, size

# One or two frees may be missing because two threads used one address in the same instant. With this many,
# frees are really not recorded.
FEWEST_UNSEEN = 3

_FIVE_STEPS = (
    "Record five steps or more, marked by prof.step(): schedule(wait=5, warmup=2, active=6). The history of "
    "a memory snapshot must be as long (max_entries)."
)

_LONGER_HISTORY = (
    "Record the history of ten of the optimizer's steps or more, with a larger max_entries. Where nothing "
    f"trains, record more than {MOST_MICRO_BATCHES} batches: fewer may wait for a backward pass."
)

_TWICE = "Record twice as many steps: a leak goes on, and what is full, or dropped now and then, does not."

_HOW_TO_BE_SURE = (
    "Note which tensors come and go: profile(schedule=tb_gpudiag.NotingTensors(schedule(wait=20, warmup=2, "
    "active=12)), profile_memory=True, with_stack=True). Or record the first 35 steps, best from before the "
    "job makes its model, or 100 steps: a leak goes on."
)


_GOT_NO_MORE = (
    "but the process got no more memory in the steps before: a full buffer that C++ holds drops its oldest "
    "entries"
)

_NOW_AND_THEN = (
    "it rose in two steps or more, and never fell: a leak that adds something now and then does so"
)

_MAY_FILL = (
    "into a deque that nothing is taken out of: with a maxlen it drops its oldest entries once it is full"
)


def no_leak(judged: list[tuple[DeviceMemory, FloorState | None]]) -> CannotTell | Clear:
    """Say why no floor rises for good, or why that cannot be told."""
    known = [(memory, state) for memory, state in judged if state]
    if not known:
        return _too_few_steps([memory for memory, _ in judged])
    gone = [_gone(memory, state, kept) for memory, state in known if (kept := let_go(memory))]
    known = [(memory, state) for memory, state in known if not let_go(memory)]
    answer = _of_what_stays(known) if known else None
    if answer is None or isinstance(answer, Clear):
        return Clear("; ".join([*gone, *([answer.reason] if answer else [])]))
    return answer


def _of_what_stays(known: list[tuple[DeviceMemory, FloorState]]) -> CannotTell | Clear:
    if unsure := [memory for memory, state in known if state == "rising"]:
        if all(map(malloc_is_level, unsure)):
            return Clear("; ".join(f"{_level(memory, 'rising')}, {_GOT_NO_MORE}" for memory in unsure))
        reason = "; ".join(map(_grows_or_turns, unsure))
        return CannotTell(reason, _how_to_be_sure(unsure), hint=_hint(unsure[0]))
    if unexplained := [memory for memory, state in known if state == "unclear" and _rises(memory)]:
        return _not_explained(unexplained)
    if kept := [_keeps_but(memory, state) for memory, state in known if _keeps_anyway(memory)]:
        return CannotTell(
            "; ".join(kept), "Record twice as many steps: a list that is cleared now and then is cleared."
        )
    if unseen := unseen_growth([memory for memory, _ in known]) or _now_and_then(known):
        return unseen
    return Clear("; ".join(_level(memory, state) for memory, state in known))


def _gone(memory: DeviceMemory, state: FloorState, kept: int) -> str:
    return f"{_level(memory, state)}, but all that the steps had kept, up to {size(kept)}, went again"


def _now_and_then(known: list[tuple[DeviceMemory, FloorState]]) -> CannotTell | None:
    rising = [(m, state) for m, state in known if state in ("unclear", "plateau") and rises_now_and_then(m)]
    if not rising:
        return None
    reason = "; ".join(f"{_level(memory, state)}: {_NOW_AND_THEN}" for memory, state in rising)
    return CannotTell(reason, "Record twice as many steps: a leak goes on.")


def _not_explained(memories: list[DeviceMemory]) -> CannotTell | Clear:
    """Say why floors that rise are not a leak for sure."""
    rising = "; ".join(_level(memory, "rising") for memory in memories)
    if not all(map(repeats, memories)):
        return CannotTell(
            f"{rising}, but the recording does not show three repetitions: one long step looks the same",
            _how_long(memories),
        )
    if any(site.in_optimizer for memory in memories for site in memory.sites):
        return CannotTell(
            f"{rising}, and the optimizer's own state grows, as L-BFGS fills its history (history_size)",
            "Record later steps, when the history is full.",
        )
    if any(is_collected(site) for memory in memories for site in memory.sites):
        return Clear(f"{rising}, but Python's garbage collector freed it: it was in reference cycles")
    replacing = [site for memory in memories for site in replacers(memory)]
    if replacing and all(map(is_replaced, replacing)):
        return Clear(f"{rising}, but as many tensors of these sizes went: a full buffer drops its oldest")
    if replacing:
        return CannotTell(
            f"{rising}, but {_replaces(replacing[0])}, and this recording does not show frees of memory that "
            "was allocated before it",
            _how_to_be_sure(memories),
        )
    dropped = next(filter(None, map(_dropped_now_and_then, memories)), None)
    return dropped or _no_line_keeps(memories, rising)


def _no_line_keeps(memories: list[DeviceMemory], rising: str) -> CannotTell:
    unseen = sum(len(memory.allocations.unseen_free) for memory in memories)
    if unseen >= FEWEST_UNSEEN:
        return CannotTell(
            f"{rising}, but {count(unseen, 'allocation')} were freed without the recording showing it: the "
            "profiler does not see threads that the job starts itself",
            "Compare the process's resident memory (RSS) some hundred steps apart: a leak raises it.",
        )
    histories = all(memory.is_of_snapshot and memory.has_modules for memory in memories)
    return CannotTell(
        f"{rising}, and no line keeps more and more: batches of changing sizes would look the same",
        _TWICE if histories else "Record more steps, with with_stack=True and profile_memory=True.",
    )


def _dropped_now_and_then(memory: DeviceMemory) -> CannotTell | None:
    site, trend = next(filter(is_dropped, memory.sites), None), memory.trend
    if site is None:
        return None
    assert trend is not None  # a state needs one
    where = str(site.frame or site.operator or "one site")
    return CannotTell(
        f"what is allocated in {where} raises {memory.name} memory by "
        f"{growth_text(trend, site.per_unit)}, but {share(site.fell)} of it went at once: it is dropped now "
        "and then",
        "Record twice as many steps: a leak leaves more each time it is dropped.",
    )


def _replaces(site: GrowingSite) -> str:
    if site.holder is not None and (site.holder.direct or site.remover is None):
        return f"{call_of_holder(site.holder)} fills a container that may drop its oldest entries"
    assert site.remover is not None  # replacers have one of both
    return f"{site.remover} takes as many entries out of a container"


def _keeps_anyway(memory: DeviceMemory) -> bool:
    """Whether "Growing allocations" lists lines that the floor may hide: they do not replace older memory."""
    kept = sum(site.per_unit for site in _not_let_go(memory))
    return kept >= least_per_unit(memory) and (floor_allows(memory, kept) or memory.misses_old_frees)


def _not_let_go(memory: DeviceMemory) -> list[GrowingSite]:
    return [one for one in memory.sites if not (one.in_optimizer or is_replaced(one) or is_dropped(one))]


def _keeps_but(memory: DeviceMemory, state: FloorState) -> str:
    site = _not_let_go(memory)[0]
    where = str(site.frame or site.operator or "one site")
    assert memory.trend is not None  # a state needs one
    growth = growth_text(memory.trend, site.per_unit)
    return f"{_level(memory, state)}, but {where} keeps more and more: {growth}"


def _too_few_steps(memories: list[DeviceMemory]) -> CannotTell:
    steps = max(memory.trend.steps if memory.trend else 0 for memory in memories)
    has = f"the recording has {count(steps)}"
    if all(memory.is_of_snapshot for memory in memories) and not steps:
        has = "this history neither marks steps nor shows any that repeat"
    return CannotTell(
        "".join(map(_what_survives, memories))
        + f"telling a leak from a warm-up takes {FEWEST_STEPS} steps after the first one, and {has}",
        _how_long(memories),
    )


def _how_long(memories: Sequence[DeviceMemory]) -> str:
    return _LONGER_HISTORY if all(memory.is_of_snapshot for memory in memories) else _FIVE_STEPS


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


def _hint(memory: DeviceMemory) -> str:
    where, growth = _kept_where(memory)
    long = _is_noted(memory) or not memory.is_cpu
    how = "a longer recording tells" if long else "schedule=tb_gpudiag.NotingTensors(…) or 100 steps tell"
    grows = f"{memory.name} memory grows by {growth}{where}"
    if may_end_with_update(memory):
        return f"{grows}, or the optimizer's next step frees it: three of them in the recording tell."
    if fills(memory):
        return f"{grows}, {_into_what(memory)}: a recording when it is full tells."
    if may_fill(memory):
        return f"{grows}, {_MAY_FILL}: a longer recording tells."
    if why := ending(memory):
        return f"{grows}, but {why}. A longer recording tells."
    return f"{grows}, or a full buffer drops its oldest there: {how}."


def _is_noted(memory: DeviceMemory) -> bool:
    return any(site.noted is not None for site in memory.sites)


def _kept_where(memory: DeviceMemory) -> tuple[str, str]:
    """` in FUNCTION (FILE, defined at line 7)`, if known, and how much of what is allocated there stays."""
    trend, where = memory.trend, next(iter(places_of(causes(memory))), None)
    assert trend is not None  # a rising floor has one
    if where is None or not where.function:
        return "", growth_text(trend, growth_per_unit(memory))
    frame = Frame(where.file, where.line, where.function, where.line_kind)
    return f" {frame.preposition} {frame}", growth_text(trend, growth_per_unit(memory))


def _grows_or_turns(memory: DeviceMemory) -> str:
    """Say what grows in the recording, and what else it may be."""
    trend, (kept, growth) = memory.trend, _kept_where(memory)
    assert trend is not None  # a rising floor has one
    grows = f"what is allocated{kept} raises {memory.name} memory by {growth} over {steps_text(trend)}"
    if may_end_with_update(memory):
        return f"{grows}, {outer_step_reason(memory)}"
    if fills(memory):
        return f"{grows}, {_into_what(memory)}"
    if may_fill(memory):
        return f"{grows}, {_MAY_FILL}"
    if why := ending(memory):
        return f"{grows}, but {why}"
    if any(site.noted and site.noted.low >= NOTED_KEPT for site in keepers(memory)):
        return (
            f"{grows}, but had it done so in all steps of this job, much more would be held: it is dropped "
            "now and then, as at the end of an epoch, or has begun late"
        )
    if begins_early(memory):
        return (
            f"{grows}, but a buffer that was filled before the job's first step looks the same: frees of "
            "older memory are not recorded"
        )
    recorder = "PyTorch's CPU profiler" if memory.is_cpu else "this history"
    return (
        f"{grows}, but {recorder} does not show frees of memory that was allocated "
        "before the recording: a leak looks like this, and so does a full buffer that replaces its oldest "
        "entries"
    )


def _into_what(memory: DeviceMemory) -> str:
    noted = next(site for site in keepers(memory) if is_filling(site)).noted
    holder = noted.holder if noted is not None else None
    assert holder is not None  # a site that fills has one
    return f"into {in_quotes(holder.type)} that takes {holder.limit} entries and has {holder.entries}"


def _how_to_be_sure(memories: Sequence[DeviceMemory]) -> str:
    if any(map(may_end_with_update, memories)):
        return how_to_see_updates(memories)
    if any(map(fills, memories)):
        return "Record again when it is full."
    if any(map(may_fill, memories)):
        return "Record more steps than the deque's maxlen, or note its limit with tb_gpudiag.NotingTensors."
    if any(map(_is_noted, memories)) or any(map(ending, memories)):
        return _TWICE
    if all(memory.is_cpu for memory in memories):
        return _HOW_TO_BE_SURE
    return "Record the history from the job's beginning, or of more steps than a buffer has entries."


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
    return f"{memory.name}: {said} ({_signed(change)} over {steps_text(trend)})"


def steps_text(trend: Trend, suffix: str = "") -> Quantity:
    return number(trend.steps, trend.word, suffix=suffix)


def _signed(change: float) -> str:
    return f"{'+' if change >= 0 else '-'}{size(abs(change))}"


def growth_text(trend: Trend, per_unit: float) -> str:
    """`7 MiB per step`. Without steps, what was seen: `7 MiB in 40 ms`."""
    if trend.unit == "step":
        return str(size(per_unit, f"per {trend.word}"))
    seen_ns = trend.end_ns - trend.start_ns
    return f"{size(per_unit * seen_ns / 1e9)} in {duration(seen_ns)}"
