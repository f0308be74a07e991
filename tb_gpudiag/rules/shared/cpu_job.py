"""Jobs without a GPU: what the main thread does instead of computing."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Bool
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.waiting.overhead import SMALL_NS
from tb_gpudiag.rules.fix_code import fix_code
from tb_gpudiag.rules.rule import Evidence, Finding, Fix
from tb_gpudiag.rules.shared.lost_time import Lost, places
from tb_gpudiag.wording.format import time_ns
from tb_gpudiag.wording.quantity import duration, number, per_step

_CODE = fix_code("tb_gpudiag.rules.idle.host_bound")

_TUNING_URL = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"


def in_overhead(lost: Lost, small_operators: Bool) -> Bool:
    """Mask of time in operators too short to compute much, shape (s,). small_operators: mask of events."""
    found: Bool = lost.of(Cause.DISPATCH, Cause.LAUNCH, Cause.ALLOCATOR) & (lost.event != NONE)
    found[found] = small_operators[lost.event[found]]
    return found


def python_finding(host: Host, lost: Lost, chosen: Bool) -> Finding:
    """Report time in Python between operators. chosen: mask of it."""
    cost_ns = lost.total_ns(chosen)
    return Finding(
        title=lost.sentence("Python between operators", cost_ns),
        summary="The main thread runs Python code that calls no operator. It may compute element by element, "
        "wait, or access files. Recording makes Python slower: compare with the step time without a "
        "profiler.",
        fix=Fix(
            "Replace loops by tensor operators, and move the rest out of the step.", _CODE["faster_python"]
        ),
        cost_ns=cost_ns,
        evidence=[Evidence.of_window("Python between operators", cost_ns, lost.window_ns)],
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
        fix=Fix(
            "Do the same with fewer and larger operators, or compile the model.",
            _CODE["fewer_operators"],
            _TUNING_URL,
        ),
        cost_ns=cost_ns,
        evidence=[
            Evidence.of_window(f"In operators below {time_ns(SMALL_NS)}", cost_ns, lost.window_ns),
            Evidence.of_window("In all operators", whole, lost.window_ns),
            Evidence("Operators", number(len(operators), "operator"), per_step(len(operators), steps)),
        ],
        places=places(host, lost.event[chosen], lost.length_ns[chosen], by_operator=True),
        ranges=lost.ranges(chosen),
    )
