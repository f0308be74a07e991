"""GD601: collectives that do not overlap with computing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from tb_gpudiag.arrays import Int64
from tb_gpudiag.facts.core.causes import BETWEEN_CALLS, Cause
from tb_gpudiag.facts.core.intervals import EMPTY, coverage, subtract
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.collectives import (
    CollectiveLaunches,
    collective_launches,
    collectives,
    exposed_communication,
)
from tb_gpudiag.facts.kernels.exposure import UnitExposure, exposed_waiting_ns, far_longer_ns
from tb_gpudiag.facts.replay.replay import Removal
from tb_gpudiag.facts.waiting.job_kind import JobKind
from tb_gpudiag.rules.answer import Clear, Evidence, Finding, Fix, Place, Removable, RuleAnswer, Severity
from tb_gpudiag.rules.rule import ERROR_SHARE, Claimed, GpuRule, fix_code
from tb_gpudiag.rules.shared.cpu_job import COMMUNICATES, cpu_time
from tb_gpudiag.rules.shared.exposure_advice import (
    FIXES,
    LATE_RANK,
    OF_REASONS,
    ExposedUnit,
    fix_of,
    most_exposed,
    reasons_evidence,
)
from tb_gpudiag.rules.shared.kernel_time import OTHER_FINDINGS, KernelTime
from tb_gpudiag.rules.shared.lost_time import ISSUING, MOST_PLACES, longest, lost_time, places
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.collective_kinds import FSDP, FUNCTIONAL, OPTIMIZER, Collective
from tb_gpudiag.vocabulary.kernel_families import Family
from tb_gpudiag.wording.format import around, in_quotes, one_line, share, time_ns
from tb_gpudiag.wording.quantity import duration, number, share_of
from tb_gpudiag.wording.vocabulary import collective

CODE = fix_code(OF_REASONS)

# Public traces of jobs with few and small collectives show 2%, and those in which communication is the main
# problem 15 to 64%. The verdict also requires a tenth of the step window before it names a limiter.
LEAST_SHARE = levels.SIZEABLE

# Hosts that keep their GPU idle this much of the time, and longer than collectives run exposed, are late at
# different times. In a public recommender job, GPUs are idle 38 to 67% of the time, and a collective takes
# 7.6 ms on the first rank and 0.01 ms on the last.
LATE_HOST_SHARE = levels.LARGE
_HOST = (*ISSUING, *BETWEEN_CALLS, Cause.COMPILE, Cause.INPUT, Cause.ALLOCATOR)

# Equal messages take equally long. If this much of the exposed time is beyond the shortest ones, it is mostly
# waiting for other ranks: in a public recommender job, equal all-to-alls take from 10 us to 4.5 ms.
WAITING_SHARE = levels.HALF

KINDS_SHOWN = 4


LATE_HOSTS = FIXES["late_hosts"]
"""While hosts are late, most of a collective's time is waiting, and tuning what is sent changes little."""

_FIXES = {
    Collective.ALL_REDUCE: FIXES["all_reduce"],
    Collective.SHARDED: FIXES["sharded"],
    Collective.ALL_TO_ALL: FIXES["all_to_all"],
    Collective.POINT_TO_POINT: FIXES["point_to_point"],
    Collective.BROADCAST: FIXES["broadcast"],
    Collective.OTHER: FIXES["other"],
}

_OF_SERVER = (
    "Use all-reduces made for small messages, no sequence parallelism, or fewer GPUs for each copy of the "
    "model."
)
_OF_LAYERS = (Collective.ALL_REDUCE, Collective.SHARDED)
"""Collectives that join the parts of layers, where there are no gradients to reduce."""


def check(facts: Facts, claimed: Claimed) -> RuleAnswer:
    """Find time in which a communication kernel runs and nothing computes, including the time it waits for a
    slower rank."""
    time = KernelTime(facts)
    device, kernels = time.device, time.kernels
    kinds = collectives(kernels, device.busy, facts.window)
    if not kinds:
        return Clear("no communication kernel ran in the step window")
    exposed = subtract(exposed_communication(device.busy, facts.window), claimed.get(device.id, EMPTY))
    cost_ns = exposed.total
    cost_share = share(cost_ns, time.window_ns)
    if time.share(cost_ns) < LEAST_SHARE:
        return Clear(f"exposed communication takes {cost_share} of the step window")
    chosen = kernels.family == Family.COLLECTIVE
    ran_ns = time.total_ns(chosen)
    own_ns = np.zeros(len(chosen), np.int64)
    own_ns[chosen] = coverage(exposed, kernels.start_ns[chosen], kernels.end_ns[chosen])
    launched = collective_launches(facts.host, kernels.event[chosen], kernels.origin[chosen])
    marked = launched.by_annotation(own_ns[chosen])
    calls, units = facts.exposure.calls, list(map(_unit, facts.exposure.by_unit))
    waiting_ns, long_ns = exposed_waiting_ns(facts.host, calls, exposed), far_longer_ns(calls, exposed)
    modes = facts.launches.modes
    waits_for_host_ns = int(device.window_account.idle_ns[0, list(_HOST)].sum())
    where = time.places(chosen, own_ns)
    if not any(place.file for place in where) and 2 * sum(ns for _, ns in marked) >= cost_ns:
        where = [Place(operator=name, time_ns=ns) for name, ns in marked[:MOST_PLACES]]
    most = [(name, ns) for name, ns in marked if ns >= levels.LARGE * cost_ns]
    most_in = " and ".join(f"{in_quotes(name, 60)} ({time_ns(ns)})" for name, ns in most)
    launched_in = around(" Most of it is launched in ", most_in, ".")
    if facts.job.data_parallel:
        fix = FIXES["data_parallel"]
    elif waits_for_host_ns >= max(cost_ns, LATE_HOST_SHARE * time.window_ns):
        fix = LATE_HOSTS
    elif max(waiting_ns, long_ns) >= WAITING_SHARE * cost_ns:
        fix = LATE_RANK
    else:
        # How collectives in graphs are called was decided at their capture.
        of_reason = None if 2 * modes.graph_work > modes.work else fix_of(units)
        fix = _fix(launched, own_ns[chosen], facts.job, of_reason)
    return Finding(
        title=f"Exposed communication takes {cost_share} of the time",
        summary="The GPU runs collectives and computes nothing meanwhile. A collective's kernel also waits "
        "for the slowest rank, and a single rank's trace does not show how much of the time is waiting: "
        f"compare with the other ranks.{launched_in}"
        f"{most_exposed(units)}",
        fix=fix,
        cost_ns=cost_ns,
        sure=False,  # it may all be waiting for a slower rank
        evidence=[
            Evidence.of_window("Exposed communication", cost_ns, time.window_ns),
            Evidence("Exposed share", share_of(cost_ns, ran_ns, "of the communication time")),
            Evidence.of_window("Communication", ran_ns, time.window_ns),
            Evidence("Communication kernels", number(int(chosen.sum()))),
            *_part("Longer than the shortest equal message", waiting_ns, cost_ns),
            *_part("In collectives far longer than usual", long_ns, cost_ns),
            *(
                Evidence(
                    one_line(collective(kind.name).word, 60),
                    number(kind.kernels, "kernel"),
                    (duration(kind.time_ns), duration(kind.exposed_ns, "exposed")),
                )
                for kind in kinds[:KINDS_SHOWN]
            ),
            *reasons_evidence(units),
        ],
        places=where,
        ranges=longest(exposed, device.id),
        claims={device.id: exposed},
        removable=Removable(
            time.shorter((chosen, (own_ns / np.maximum(1, kernels.duration_ns))[chosen])),
            least=Removal(),
            beyond=OTHER_FINDINGS,
        ),
    )


def _on_cpu(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    """Find collectives that take more of the main thread's time than anything else does."""
    lost = lost_time(facts)
    spent = cpu_time(lost, facts.host_work.small_operators)
    cost_ns, said = spent.communicating_ns, lost.sentence("Communication", spent.communicating_ns)
    if cost_ns < max(LEAST_SHARE * lost.window_ns, spent.computing_ns, *spent.others.values()):
        return Clear(said)
    chosen, units = lost.of(*COMMUNICATES), list(map(_unit, facts.exposure.by_unit))
    return Finding(
        title=said,
        summary="The main thread waits in collectives. Those also wait for the slowest rank, and a single "
        "rank's trace does not show how much of the time is waiting: compare with the other ranks."
        f"{most_exposed(units)}",
        fix=fix_of(units) or _FIXES[Collective.OTHER],
        cost_ns=cost_ns,
        sure=False,
        evidence=[Evidence.of_window("In collectives", cost_ns, lost.window_ns), *reasons_evidence(units)],
        places=places(facts.host, lost.event[chosen], lost.length_ns[chosen], by_operator=True),
        ranges=lost.ranges(chosen),
        severity=Severity.INFO,  # on a CPU, other ranks and this thread share cores: only all ranks tell
    )


def _unit(one: UnitExposure) -> ExposedUnit:
    why = one.why.name.lower()
    return ExposedUnit(
        one.kind, one.parallelism, one.unit, one.number, one.of, why, one.calls, one.exposed_ns
    )


def _part(label: str, ns: int, cost_ns: int) -> list[Evidence]:
    """A part of the exposed time that is probably waiting."""
    return Evidence.some(label, duration(ns), share_of(ns, cost_ns, "of the exposed time"))


def _fix(launched: CollectiveLaunches, exposed_ns: Int64, job: JobKind, of_reason: Fix | None) -> Fix:
    """Return the fix for the reason of most of the exposed time, else for its kind. Collectives that join the
    layers of a model without gradients run on its stream because their result is needed at once."""
    kind = Collective(int(np.bincount(launched.kind, exposed_ns, len(Collective)).argmax()))
    by_caller: Counter[str] = Counter()
    for caller, own, ns in zip(launched.caller, launched.kind.tolist(), exposed_ns.tolist(), strict=True):
        by_caller[caller] += ns if own == kind else 0
    if kind in _OF_LAYERS and job.server is not None:
        return replace(
            FIXES["tensor_parallel"], text=_OF_SERVER, code=CODE.get(job.server.value.lower(), CODE["server"])
        )
    if of_reason is not None and job.training is not False:
        return of_reason
    return collective_fix(kind, by_caller.most_common(1)[0][0], job.training)


def collective_fix(kind: Collective, caller: str, training: bool | None) -> Fix:
    """Return the fix for a kind of collective. caller: of CALLERS, or "". Inference has no gradients to
    reduce."""
    of_layers = caller == FUNCTIONAL or (not caller and training is False)
    if kind in _OF_LAYERS and of_layers:
        return FIXES["tensor_parallel"]
    if kind is Collective.SHARDED and caller != FSDP:
        return FIXES["sharded_optimizer"] if caller == OPTIMIZER else _FIXES[Collective.OTHER]
    return _FIXES[kind]


RULE = GpuRule(
    "GD601", "exposed_communication", "Exposed communication", check, on_cpu=_on_cpu, error_share=ERROR_SHARE
)
