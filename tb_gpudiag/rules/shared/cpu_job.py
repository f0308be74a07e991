"""Jobs without a GPU: what the main thread does instead of computing."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Bool
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.waiting.host_tasks import HostTask, HostTasks
from tb_gpudiag.facts.waiting.job_kind import JobKind
from tb_gpudiag.facts.waiting.small_operators import SMALL_NS
from tb_gpudiag.rules.rule import Evidence, Finding, Fix, Saving
from tb_gpudiag.rules.shared.evidence import per_step, window_time
from tb_gpudiag.rules.shared.host_task_fixes import HOST_TASK_FIXES, host_task_fix
from tb_gpudiag.rules.shared.lost_time import Lost, places
from tb_gpudiag.wording.format import time_ns
from tb_gpudiag.wording.quantity import duration, number

_TUNING_URL = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"

_FEWER = """# One operator on a large tensor instead of many on small ones:
total = torch.stack(parts).sum(0)                # not: for part in parts: total = total + part
optimizer = torch.optim.SGD(model.parameters(), lr=lr, foreach=True)

# Or let the compiler fuse them:
model = torch.compile(model)"""

_FASTER_PYTHON = """# Use tensor operators instead of loops over elements, or let a library do the loop:
counts = torch.bincount(labels, minlength=classes)   # not: for label in labels: counts[label] += 1

# Move what a step does not need out of it: logging, metrics, checks, file access."""


def in_overhead(lost: Lost, small_operators: Bool) -> Bool:
    """Mask of time in operators too short to compute much, shape (s,). small_operators: mask of events."""
    found: Bool = lost.of(Cause.DISPATCH, Cause.LAUNCH, Cause.ALLOCATOR) & (lost.event != NONE)
    found[found] = small_operators[lost.event[found]]
    return found


def task_finding(
    host: Host, tasks: HostTasks, lost: Lost, chosen: Bool, kind: HostTask, steps: int, job: JobKind
) -> Finding:
    """Report a host task, such as saving files. chosen: mask of its time."""
    known = HOST_TASK_FIXES[kind]
    cost_ns, event = lost.total_ns(chosen), lost.event[chosen]
    calls = len(np.unique(tasks.call[event]))
    return Finding(
        title=lost.sentence(known.label, cost_ns),
        summary=f"The job does not compute while the main thread is {known.activity}.",
        fix=host_task_fix(kind, job),
        cost_ns=cost_ns,
        saving=Saving(0, cost_ns),
        evidence=[
            window_time(f"Main thread in {known.noun}", cost_ns, lost.window_ns),
            Evidence("Calls", number(calls, "call"), per_step(calls, steps)),
        ],
        # Users do not edit the library, so the place is the function that calls it.
        places=places(host, tasks.caller(event), lost.length_ns[chosen]),
        ranges=lost.ranges(chosen),
    )


def python_finding(host: Host, lost: Lost, chosen: Bool) -> Finding:
    """Report time in Python between operators. chosen: mask of it."""
    cost_ns = lost.total_ns(chosen)
    return Finding(
        title=lost.sentence("Python between operators", cost_ns),
        summary="The main thread runs Python code that calls no operator. It may compute element by element, "
        "wait, or access files. Recording makes Python slower: compare with the step time without a "
        "profiler.",
        fix=Fix("Replace loops by tensor operators, and move the rest out of the step.", _FASTER_PYTHON),
        cost_ns=cost_ns,
        saving=Saving(0, cost_ns),
        evidence=[window_time("Python between operators", cost_ns, lost.window_ns)],
        places=places(host, lost.event[chosen], lost.length_ns[chosen]),
        ranges=lost.ranges(chosen),
    )


def dispatch_finding(host: Host, lost: Lost, chosen: Bool, steps: int) -> Finding:
    """Report time in small operators. chosen: mask of it."""
    cost_ns, operators = lost.total_ns(chosen), np.unique(host.operator[lost.event[chosen]])
    whole = lost.total_ns(lost.of(Cause.DISPATCH, Cause.LAUNCH, Cause.ALLOCATOR))
    return Finding(
        title=lost.sentence("CPU operator overhead", cost_ns),
        summary=f"The main thread calls {number(len(operators), 'operator')} of "
        f"{duration(cost_ns / len(operators))} on average. Dispatching such an operator takes longer than "
        "what it computes.",
        fix=Fix("Do the same with fewer and larger operators, or compile the model.", _FEWER, _TUNING_URL),
        cost_ns=cost_ns,
        saving=Saving(0, cost_ns),
        evidence=[
            window_time(f"In operators below {time_ns(SMALL_NS)}", cost_ns, lost.window_ns),
            window_time("In all operators", whole, lost.window_ns),
            Evidence("Operators", number(len(operators), "operator"), per_step(len(operators), steps)),
        ],
        places=places(host, lost.event[chosen], lost.length_ns[chosen], by_operator=True),
        ranges=lost.ranges(chosen),
    )
