"""GD601: collectives that do not overlap with computing."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.intervals import EMPTY, coverage, subtract
from tb_gpudiag.facts.device_facts import DeviceFacts
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.kernels.collectives import collectives, exposed_communication
from tb_gpudiag.facts.launching.collective_launches import collective_launches
from tb_gpudiag.rules.rule import (
    NO_GPU,
    NOTHING_CLAIMED,
    Claimed,
    Clear,
    Evidence,
    Finding,
    Place,
    Rule,
    RuleAnswer,
    Saving,
)
from tb_gpudiag.rules.shared.collective_fixes import LATE_HOSTS, collective_fix
from tb_gpudiag.rules.shared.evidence import window_time
from tb_gpudiag.rules.shared.kernel_time import kernel_time
from tb_gpudiag.rules.shared.lost_time import ISSUING, MOST_PLACES, longest
from tb_gpudiag.vocabulary.collective_kinds import Collective
from tb_gpudiag.vocabulary.kernel_families import Family
from tb_gpudiag.wording.format import one_line, share, time_ns
from tb_gpudiag.wording.kinds import collective
from tb_gpudiag.wording.quantity import duration, number, share_of

# Public traces of jobs with few and small collectives show 2%, and those in which communication is the main
# problem 15 to 64%. The verdict also requires a tenth of the step window before it names a limiter.
LEAST_SHARE = 0.10

# Hosts that keep their GPU idle this much of the time, and longer than collectives run exposed, are late at
# different times. In a public recommender job, GPUs are idle 38 to 67% of the time, and a collective takes
# 7.6 ms on the first rank and 0.01 ms on the last.
LATE_HOST_SHARE = 0.20
_HOST = (*ISSUING, Cause.PYTHON, Cause.COMPILE, Cause.INPUT, Cause.ALLOCATOR)

KINDS_SHOWN = 4

# An annotation that covers less of the exposed time than this is not worth a sentence.
LEAST_PART = 0.2


def check(facts: Facts, claimed: Claimed = NOTHING_CLAIMED) -> RuleAnswer:
    """Find time in which a communication kernel runs and nothing computes, including the time it waits for a
    slower rank."""
    time = kernel_time(facts.device, facts.window, facts.host)
    if time is None:
        return NO_GPU
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
    exposed_by_kind = np.bincount(launched.kind, weights=own_ns[chosen], minlength=len(Collective))
    marked = launched.by_annotation(own_ns[chosen])
    return Finding(
        title=f"Exposed communication takes {cost_share} of the time",
        summary="The GPU runs collectives and computes nothing meanwhile. A collective's kernel also waits "
        "for the slowest rank, and a single rank's trace does not show how much of the time is waiting: "
        f"compare with the other ranks.{_most_in(marked, cost_ns)}",
        fix=LATE_HOSTS
        if _waiting_for_host_ns(device) >= max(cost_ns, LATE_HOST_SHARE * time.window_ns)
        else collective_fix(Collective(int(exposed_by_kind.argmax())), facts.job),
        cost_ns=cost_ns,
        sure=False,  # it may all be waiting for a slower rank
        saving=Saving(0, cost_ns),
        evidence=[
            window_time("Exposed communication", cost_ns, time.window_ns),
            Evidence("Exposed share", share_of(cost_ns, ran_ns, "of the communication time")),
            window_time("Communication", ran_ns, time.window_ns),
            Evidence("Communication kernels", number(int(chosen.sum()))),
            *(
                Evidence(
                    one_line(collective(kind.name).word, 60),
                    number(kind.kernels, "kernel"),
                    (duration(kind.time_ns), duration(kind.exposed_ns, "exposed")),
                )
                for kind in kinds[:KINDS_SHOWN]
            ),
        ],
        places=_places(marked, time.places(chosen, own_ns), cost_ns),
        ranges=longest(exposed, device.id),
        claims={device.id: exposed},
    )


def _waiting_for_host_ns(device: DeviceFacts) -> int:
    """Idle time of the step window in which the GPU waits for its own host to launch."""
    return int(device.window_account.idle_ns[0, list(_HOST)].sum())


def _places(marked: list[tuple[str, int]], found: list[Place], cost_ns: int) -> list[Place]:
    """The annotations as places, if they contain at least half of the time and no function is known."""
    if any(place.file for place in found) or 2 * sum(ns for _, ns in marked) < cost_ns:
        return found
    return [Place(operator=name, time_ns=ns) for name, ns in marked[:MOST_PLACES]]


def _most_in(marked: list[tuple[str, int]], cost_ns: int) -> str:
    """A sentence on the annotations with most of the exposed time; "" if none has much of it."""
    parts = [f"{one_line(name, 60)} ({time_ns(ns)})" for name, ns in marked if ns >= LEAST_PART * cost_ns]
    return f" Most of it is launched in {' and '.join(parts)}." if parts else ""


RULE = Rule("GD601", "exposed_communication", "Exposed communication", check, error_share=0.30)
