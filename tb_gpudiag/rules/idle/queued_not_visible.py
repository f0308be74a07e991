"""GD105: the GPU was idle although work was queued, and the trace does not show why."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.waiting.stream_waits import Awaited
from tb_gpudiag.facts.waiting.sync_sites import waits_in
from tb_gpudiag.rules.answer import Evidence, Finding, Fix
from tb_gpudiag.rules.rule import GpuRule, fix_code, page_fixes, speaks_from
from tb_gpudiag.rules.shared.lost_time import LostPart, of_lost_time
from tb_gpudiag.rules.shared.recording_advice import PROFILER_URL
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.format import in_quotes
from tb_gpudiag.wording.quantity import duration, number

CODE = fix_code(__name__)
FIXES = page_fixes(__name__)

# A filled queue is healthy. A little idle time while work is queued is normal too: streams and copies depend
# on each other.
LEAST_SHARE = levels.NOTICEABLE

# Where the host waits meanwhile, in one operator, for this share of the time, fewer such waits cost less.
MOSTLY_WAITED = levels.HALF

MOST_AWAITED = 3
"""Most kernels that are named as what the work waited for."""

LONGEST_NAME = 60
"""Characters of such a kernel's name."""


def _finding(part: LostPart) -> Finding:
    facts, lost, chosen, cost_ns = part.facts, part.lost, part.chosen, part.cost_ns
    gaps = len(set(lost.gap[chosen].tolist()))
    earlier_ns = lost.total_ns(chosen & (lost.end_ns <= facts.gpu.busy.span.start_ns))
    longest = int(lost.length_ns[chosen].max())
    awaiting = _awaiting(facts.gpu.awaited(np.unique(lost.gap[chosen])))
    idle = lost.stretches(chosen)
    # A host that is far ahead waits for its queue, and the queue as long as it does.
    ahead_ns = lost.total_ns(chosen) - lost.total_ns(chosen & facts.gpu.just_launched(lost.gap))
    title, seen, fix = _AWAITED if awaiting else ("; this trace cannot say why", _seen(facts), _fix(facts))
    waiting = waits_in(facts.host, facts.host_time.blocking, idle, MOSTLY_WAITED)
    if waiting and ahead_ns <= MOSTLY_WAITED * cost_ns:
        seen += f" Meanwhile the host waits for this work, mostly in {waiting}."
        fix = _once(waiting)
    return Finding(
        title=f"The GPU sat idle {part.of_window} of the time although kernels were queued{title}",
        summary="The work that ended these gaps had been launched before they began, so the host was not "
        f"late. {seen}",
        fix=fix,
        sure=False,
        evidence=[
            Evidence.of_window("Idle with work queued", cost_ns, lost.window_ns),
            Evidence("Gaps", number(gaps, "gap"), (duration(longest, "longest"),)),
            *awaiting,
            *_before_first_work(earlier_ns),
        ],
        **lost.where(facts.host, chosen, by_operator=True),
    )


def _once(operator: str) -> Fix:
    """Each wait costs such a delay, whatever causes it."""
    return Fix(
        f"Wait in {in_quotes(operator, LONGEST_NAME)} less often, such as once for all steps: each time "
        "costs this delay. If it should not take so long, look for other processes on the GPU.",
        f"{CODE['once']}\n\n{CODE['processes']}",
    )


_AWAITED = (
    "",
    "Synchronization events show which gaps ended with work that waited for another stream.",
    Fix("Shorten the work that the evidence names, or let the stream wait for it later."),
)
"""The end of the title, what is seen, and the fix, where the trace shows what the work waited for."""


def _seen(facts: Facts) -> str:
    """What the work may have waited for: no suspect that the trace rules out."""
    recorded = facts.stream_waits.recorded
    suspects = {
        "an event of another stream": facts.streams > 1 and not recorded,
        "another rank": facts.has_ranks,
        "the start of a large graph": facts.launches.modes.graph_launches > 0,
        "another process on the same GPU, such as a desktop session": True,
    }
    shown = (
        "Synchronization events were recorded, and none of this work waited for another stream's event. "
        if recorded
        else ""
    )
    *others, last = (suspect for suspect, may_be in suspects.items() if may_be)
    listed = f"{', '.join(others)}{',' if len(others) > 1 else ''} or {last}" if others else last
    return f"{shown}The work may have waited for {listed}. The cause is not visible in this trace."


def _fix(facts: Facts) -> Fix:
    """Ask for what could still show the cause."""
    by_events = facts.streams > 1 and not facts.stream_waits.recorded
    asks = {
        "Record with synchronization events.": by_events,
        "Record all ranks and compare: the others wait for the rank that waits least.": facts.has_ranks,
    }
    text = " ".join(ask for ask, may_show in asks.items() if may_show)
    code = CODE["sync_events"] if by_events else ""
    return Fix(text, code, PROFILER_URL) if text else FIXES["processes"]


def _awaiting(awaited: list[Awaited]) -> list[Evidence]:
    """Say what the work that ended the gaps waited for, most frequent first."""
    return [
        Evidence(
            f"Waiting for GPU {one.device}, stream {one.stream}",
            number(one.gaps, "gap"),
            (f"after {in_quotes(one.kernel, LONGEST_NAME)}",),
        )
        for one in awaited[:MOST_AWAITED]
    ]


def _before_first_work(idle_ns: int) -> list[Evidence]:
    """Idle time before the GPU's first recorded work, which may have been busy."""
    if not idle_ns:
        return []
    caveat = "the GPU may have been busy with work from before the recording"
    return [Evidence("Before the first recorded GPU work", duration(idle_ns), (caveat,))]


# Idle time, longer than a turnaround, during which the next work had already been launched.
_CHECK = speaks_from(
    LEAST_SHARE,
    of_lost_time(lambda lost: lost.of(Cause.QUEUED)),
    lambda part: f"the GPU is idle {part.of_window} of the step window with work queued",
    _finding,
)

RULE = GpuRule("GD105", "queued_not_visible", "Idle with work queued", _CHECK)
