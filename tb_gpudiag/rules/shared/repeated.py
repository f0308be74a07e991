"""What a step calls again and again with equal work, in the findings whose time it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np

from tb_gpudiag.arrays import Bool, marked
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.host_facts import HostWork
from tb_gpudiag.facts.operators.done_again import Repeats
from tb_gpudiag.rules.answer import Evidence, Finding, Fix, Severity
from tb_gpudiag.rules.rule import page_fixes
from tb_gpudiag.rules.shared.host_task_fixes import place_text
from tb_gpudiag.rules.shared.lost_time import Lost, places
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.frames import called
from tb_gpudiag.vocabulary.marks import module_name
from tb_gpudiag.wording.format import figures, one_line, share

_FIXES = page_fixes("tb_gpudiag.rules.kernels.cpu_computing")

# Batches that are sorted by their length grow as well, a few times.
LEAST_GROWING = 8


class Said(NamedTuple):
    """What is said of calls that are made again, and of how many at least. more: for the finding."""

    of: Callable[[HostWork], Repeats]
    least: int
    how: str
    summary: str
    label: str
    fix: Fix
    more: Mapping[str, Any]


EQUAL: Final = Said(
    lambda work: work.calls_again,
    1,
    "in a step, all but the first for",
    "in a step, with the same operators on inputs of the same shapes. The trace does not show whether the "
    "values are the same, too, or one call needs the one before.",
    "Runs in a step",
    _FIXES["again"],
    {},
)
ON_MORE: Final = Said(
    lambda work: work.calls_on_more,
    LEAST_GROWING,
    "in a row, each on more than before, all but the first for",
    "in a row, with the same operators, each time on as much more: over what those before saw.",
    "Runs in a row",
    _FIXES["cache"],
    {"severity": Severity.WARNING},
)
"""A cache makes each call shorter, and not fewer: it is no fix for what operators cost by their number."""


def with_repeats(
    found: Finding, facts: Facts, lost: Lost, chosen: Bool, kinds: Sequence[Said] = (EQUAL, ON_MORE)
) -> Finding:
    """Say what is called again and again if its calls but the first of each step are most of the finding.

    chosen: mask of the finding's time, shape (s,)."""
    work, host = facts.host_work, facts.host

    def again_ns_of(said: Said) -> int:
        repeats = said.of(work)
        again_ns = lost.total_ns(chosen & marked(repeats.again, lost.event))
        return again_ns if repeats.per_step >= said.least else 0

    said = max(kinds, key=again_ns_of)
    repeats, again_ns = said.of(work), again_ns_of(said)
    if again_ns < levels.HALF * max(1, lost.total_ns(chosen)):
        return found
    name = one_line(called(module_name(host.name(repeats.call))), 80)
    lost_share = share(again_ns, lost.window_ns)
    times = f"{figures(repeats.per_step)} times"
    caller = np.array(host.tree.ancestors(repeats.call)[-2:-1])
    callers = [replace(place, time_ns=again_ns) for place in places(host, caller, caller)]
    where = "".join(f" from {place_text(place)}" for place in callers)
    return replace(
        found,
        title=f"{found.title}: {name} runs {times} {said.how} {lost_share}",
        summary=f"{name} runs {times}{where} {said.summary} {found.summary}",
        places=[*callers, *found.places],  # what calls it is what to change
        fix=said.fix,
        evidence=[
            *found.evidence,
            Evidence(said.label, times),
            Evidence.of_window("All but the first", again_ns, lost.window_ns),
        ],
        **said.more,
    )
