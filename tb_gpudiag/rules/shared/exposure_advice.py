"""What to do about exposed collectives, by the reason that the trace shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tb_gpudiag.rules.answer import Evidence, Fix
from tb_gpudiag.rules.rule import page_fixes
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.collective_kinds import FULLY_SHARDED
from tb_gpudiag.wording.format import around, in_quotes, in_sentence, time_ns
from tb_gpudiag.wording.quantity import duration, share_of
from tb_gpudiag.wording.vocabulary import EXPOSURE_REASONS, unit_text

OF_REASONS: Final = "tb_gpudiag.rules.shared.exposure_fixes"

FIXES = page_fixes("tb_gpudiag.rules.ranks.exposed_communication") | page_fixes(OF_REASONS)

# A reason for most of the exposed time decides what to do first.
MOST: Final = levels.HALF

REASONS_SHOWN: Final = 3

REDUCE_ONCE: Final = FIXES["no_sync"]

KEEP_WHOLE: Final = FIXES["keep_whole"]

_FIXES: Mapping[str, Fix] = {
    "same_stream": FIXES["same_stream"],
    "synchronized": FIXES["synchronized"],
    "rate_limited": FIXES["rate_limited"],
    "not_prefetched": FIXES["prefetch"],
    "reduced_again": REDUCE_ONCE,
    "last_bucket": FIXES["last_bucket"],
}

_FIXES_OF_SHARDED = {**_FIXES, "reduced_again": KEEP_WHOLE, "behind_collective": FIXES["separate_groups"]}

LATE_RANK = FIXES["slow_rank"]
"""Sending less is no fix if equal messages take very different times."""


class ExposedUnit(NamedTuple):
    """Collectives of one kind for one unit of the model, exposed for one reason (EXPOSURE_REASONS)."""

    kind: str
    parallelism: str
    unit: str
    number: int
    of: int
    why: str
    calls: int
    exposed_ns: int


def fix_of(units: Sequence[ExposedUnit]) -> Fix | None:
    """Return the fix for the reason of most of the exposed time; None if no reason has one.

    units: most exposed first."""
    why, ns = next(iter(by_reason(units)), ("unknown", 0))
    own = [one for one in units if one.why == why]
    if ns < MOST * sum(one.exposed_ns for one in units):
        return None
    sharded = {one.parallelism for one in own} == {FULLY_SHARDED}
    if sharded and why == "after_computing" and {one.kind for one in own} == {"all_gather"}:
        return FIXES["connections"]
    return (_FIXES_OF_SHARDED if sharded else _FIXES).get(why)


def by_reason(units: Sequence[ExposedUnit]) -> list[tuple[str, int]]:
    """Return the exposed time of each reason, most first."""
    total: dict[str, int] = {}
    for one in units:
        total[one.why] = total.get(one.why, 0) + one.exposed_ns
    return sorted(((why, ns) for why, ns in total.items() if ns), key=lambda pair: (-pair[1], pair[0]))


def reasons_evidence(units: Sequence[ExposedUnit]) -> list[Evidence]:
    total = sum(one.exposed_ns for one in units)
    return [
        Evidence(
            EXPOSURE_REASONS[why].word, duration(ns), (share_of(ns, total, "of the exposed collectives"),)
        )
        for why, ns in by_reason(units)[:REASONS_SHOWN]
    ]


def most_exposed(units: Sequence[ExposedUnit]) -> str:
    """` Most exposed: the all-gather of "layers.3" (FSDP), 3 ms in 5 calls: FSDP launched it …`; "" if the
    trace does not show why."""
    one = next(iter(units), None)
    if one is None or not one.exposed_ns or one.why == "unknown":
        return ""
    unit = unit_text(one.parallelism, one.unit, one.number, one.of)
    named = f" of {in_quotes(unit, 60)}" if one.unit else around(", ", unit)
    of = around(" (", one.parallelism, ")")
    reason = in_sentence(EXPOSURE_REASONS[one.why].explanation)
    calls = f" in {one.calls:,} calls" if one.calls > 1 else ""
    kind = "collective" if one.kind == "other" else one.kind.replace("_", "-")
    return f" Most exposed: the {kind}{named}{of}, {time_ns(one.exposed_ns)}{calls}: {reason}"
