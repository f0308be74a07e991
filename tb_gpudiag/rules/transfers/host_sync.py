"""GD301: the host synchronizes with the GPU, and afterwards the GPU waits for the host."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tb_gpudiag.arrays import NONE, Int64, UInt8, summed
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Intervals, union
from tb_gpudiag.facts.core.places import by_inputs
from tb_gpudiag.facts.core.transfers import Transfers
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.replay.replay import Removal
from tb_gpudiag.facts.waiting.job_kind import JobKind
from tb_gpudiag.facts.waiting.sync_sites import SyncKind, calls_in, operators_around, sync_kinds
from tb_gpudiag.rules.answer import CannotTell, Clear, Evidence, Finding, Fix, Removable, RuleAnswer, Severity
from tb_gpudiag.rules.rule import Claimed, GpuRule, page_fixes
from tb_gpudiag.rules.shared.copies import copy_from_pinned, waits_with
from tb_gpudiag.rules.shared.host_task_fixes import HOST_TASK_FIXES
from tb_gpudiag.rules.shared.lost_time import LONGEST_GAP_NS, Lost, longest, lost_time, places
from tb_gpudiag.rules.shared.recording_advice import no_gpu
from tb_gpudiag.rules.shared.roofline_evidence import tensors
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.torch_frames import HostTask
from tb_gpudiag.wording.format import count, share
from tb_gpudiag.wording.quantity import duration, number
from tb_gpudiag.wording.vocabulary import CAUSES

FIXES = page_fixes(__name__)

# Step times vary by 1 to 2% from run to run, so a smaller effect of the fix could not be measured.
LEAST_SHARE = levels.MEASURABLE

# A single synchronization that makes this much of the cost is none of a loop's.
AT_ONCE = levels.HALF

MOST_KINDS = 4
"""Number of kinds of synchronization in the evidence."""

_KINDS = {
    SyncKind.PRINT: ("Printing a tensor", "rarely"),
    SyncKind.SIZE: ("nonzero, boolean index or another size that only the GPU knows", "fixed_size"),
    SyncKind.CONDITION: ("Condition on a tensor's value", "on_the_gpu"),
    SyncKind.ITEM: (".item() or float() of a tensor", "rarely"),
    SyncKind.COPY_TO_HOST: ("Copy to the host", "copy_back"),
    SyncKind.COPY_TO_DEVICE: ("Blocking copy to the GPU", "avoid_copy"),
    SyncKind.DEVICE: ("Waiting for the whole device", "synchronize"),
    SyncKind.EVENT: ("Waiting for an event", "stream_waits"),
    SyncKind.STREAM: ("Waiting for a stream", "stream_waits"),
    SyncKind.LAUNCH: ("Launches that wait for their kernel", "launch_blocking"),
    SyncKind.COPY: ("Blocking copy", "avoid_copy"),
}
"""Each kind of synchronization: what to call it, and its fix."""

_ONCE = " Most of this follows a single one, and without steps nothing shows that it recurs."

# A fix does not read these values at all, or in one step of many.
_READS = np.array([SyncKind.PRINT, SyncKind.CONDITION, SyncKind.ITEM], np.uint8)


def check(facts: Facts, claimed: Claimed) -> RuleAnswer:
    """Find idle time after synchronizations, each at most as long as the host was blocked: without the
    synchronization, the host would have been that much further ahead."""
    device = facts.gpu
    lost = lost_time(facts, claimed)
    gaps = device.ledger.gaps
    chosen = lost.drained_ns > 0
    cost_ns = int(lost.drained_ns[chosen].sum())
    cost_share = share(cost_ns, lost.window_ns)
    if lost.share(cost_ns) < LEAST_SHARE:
        if not facts.recorded.waits:
            return CannotTell(
                "the recording has no calls in which the host waits for the GPU",
                "Record with torch 2.12 or later: before, calls of Intel's driver were left out.",
            )
        return Clear(f"synchronizations leave the GPU idle {cost_share} of the step window")
    claim = union(lost.start_ns[chosen], lost.start_ns[chosen] + lost.drained_ns[chosen])
    per_gap = summed(lost.gap[chosen], lost.drained_ns[chosen], len(gaps))
    drained = np.flatnonzero(per_gap)
    calls, blocked_ns = gaps.blocked_in[drained], gaps.blocked_ns[drained]
    kinds = _by_kind(sync_kinds(facts.host, facts.transfers, calls), per_gap[drained], blocked_ns)
    tasks = facts.host_work.tasks.time_ns(lost.event, lost.drained_ns)
    removable = _removable(facts.host, facts.transfers, facts.host_time.blocking, calls)
    once = not len(facts.steps) and int(per_gap.max()) >= AT_ONCE * cost_ns
    return Finding(
        title=f"Synchronizations leave the GPU idle {cost_share} of the time",
        summary=f"{count(len(drained), 'time')} in the step window, the host waits until the GPU has "
        "finished all queued work. The GPU is then idle until the host launches something new."
        + (_ONCE if once else ""),
        fix=_fix(kinds[0].kind, facts.job),
        cost_ns=cost_ns,
        evidence=[
            Evidence.of_window("Idle after synchronizations", cost_ns, lost.window_ns),
            *_refilling(lost, tasks, cost_ns),
            Evidence("Host blocked", duration(int(blocked_ns.sum()))),
            *(
                Evidence(
                    _KINDS[k.kind][0],
                    number(k.waits, "synchronization"),
                    (duration(k.blocked_ns, "host blocked"), duration(k.refill_ns, "GPU idle after")),
                )
                for k in kinds[:MOST_KINDS]
            ),
        ],
        places=places(facts.host, calls, per_gap[drained], by_operator=True),
        ranges=longest(claim, device.id),
        claims={device.id: claim},
        removable=replace(removable, least=Removal()) if once else removable,
        severity=Severity.INFO.when(once),
        sure=not once,
    )


def _unseen(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    """The hint where the trace shows the host's side only, as on Apple's GPUs."""
    use, host, window_ns = facts.gpu_use, facts.host, facts.window.duration_ns
    if not len(use.held):
        return no_gpu(facts)
    kinds = _by_kind(sync_kinds(host, facts.transfers, use.held), use.held_ns, use.held_ns)
    longest_one = by_inputs(host, use.held, use.held_ns)[:1]
    waited = share(int(use.held_ns.sum()), window_ns)
    return Finding(
        title=f"{_KINDS[kinds[0].kind][0]}: waiting takes {waited} of the main thread's time",
        summary=f"{count(len(use.held), 'time')}, reading a value or copying takes a millisecond and more: "
        "until the GPU has finished all queued work, or for the copy itself. The GPU's own work takes as "
        "long without the wait. The GPU is idle after it, until the host launches something new; how long, "
        "this trace does not show.",
        fix=_fix(kinds[0].kind, facts.job),
        evidence=[
            *(Evidence.of_window(_KINDS[k.kind][0], k.blocked_ns, window_ns) for k in kinds[:MOST_KINDS]),
            *(Evidence.of_window(f"{one} of {tensors(of)}", ns, window_ns) for one, of, ns in longest_one),
        ],
        places=places(host, use.held, use.held_ns, by_operator=True),
        severity=Severity.INFO,
    )


def _fix(kind: SyncKind, job: JobKind) -> Fix:
    fix = FIXES[_KINDS[kind][1]]
    if kind in {SyncKind.COPY_TO_DEVICE, SyncKind.COPY}:
        return replace(fix, code=f"{copy_from_pinned(job)}\n\n{fix.code}")
    return fix


def _refilling(lost: Lost, tasks: dict[HostTask, int], cost_ns: int) -> list[Evidence]:
    """What the GPU waits for after synchronizations, most first: causes, and host tasks among them.

    tasks: ns of each host task.
    """
    spent = summed(lost.cause, lost.drained_ns, len(Cause))
    parts = [
        (f"Idle during {CAUSES[cause.label].noun}", int(spent[cause]))
        for cause in Cause
        if cause != Cause.SYNC
    ]
    parts.append(("Idle until the calls return", int(spent[Cause.SYNC])))
    parts += [(f"Idle while {HOST_TASK_FIXES[task].activity}", ns) for task, ns in tasks.items()]
    parts.sort(key=lambda part: -part[1])
    return [
        Evidence.of_cost(label, ns, cost_ns) for label, ns in parts if ns >= max(1, levels.SIZEABLE * cost_ns)
    ]


class _Kind(NamedTuple):
    kind: SyncKind
    waits: int
    blocked_ns: int  # how long the host was blocked
    refill_ns: int  # how long the GPU was idle afterwards


def _by_kind(kind: UInt8, refill_ns: Int64, blocked_ns: Int64) -> list[_Kind]:
    """Sum up the synchronizations by kind, most idle time first. Columns have shape (g,), one row per gap."""
    found = [
        _Kind(k, int(chosen.sum()), int(blocked_ns[chosen].sum()), int(refill_ns[chosen].sum()))
        for k in SyncKind
        if (chosen := kind == k).any()
    ]
    return sorted(found, key=lambda k: -k.refill_ns)


def _removable(host: Host, transfers: Transfers, blocking: Int64, drained: Int64) -> Removable:
    """A fix removes at least the synchronizations that drained the queue, and reads of single values with
    their operators and what those launch: a value that is not read needs no copy, either. At most, it removes
    all, with the operators around them. Those of copies to the device stay: pageable_copies covers them.

    blocking: all blocking calls; drained: those that drained the queue.
    """
    copies = transfers.launch[transfers.to_device & (transfers.launch != NONE)]
    copying = waits_with(host, blocking, copies)
    removable = blocking[~copying]
    # A copy that blocks and the synchronization after it, in one operator, are one wait.
    least = removable[waits_with(host, removable, drained)]
    around = operators_around(host, removable, LONGEST_GAP_NS)
    reads = least[np.isin(sync_kinds(host, transfers, least), _READS)]
    reading = operators_around(host, reads, LONGEST_GAP_NS)
    return Removable(_without(host, around, removable), least=_without(host, reading, least))


def _without(host: Host, spans: Intervals, waits: Int64) -> Removal:
    """Remove this host time with all that it launches, and these waits."""
    return Removal(spans, unblocked=tuple(waits.tolist()), dropped=tuple(calls_in(host, spans).tolist()))


RULE = GpuRule(
    "GD301", "host_sync", "Synchronizations", check, unseen=_unseen, error_share=levels.LARGE, topic="sync"
)
