"""GD102: Python or a slow operator on the CPU keeps the GPU idle.

Each known host task, such as logging, is a finding of its own, as is freeing large blocks of memory. What is
left is one finding, and the first of CASES that is half of the time says what it is and what to do. Without a
GPU, the same is asked of the main thread's whole time. Words and code of each case are on the page.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tb_gpudiag.arrays import Bool
from tb_gpudiag.facts.core.causes import BETWEEN_CALLS, Cause
from tb_gpudiag.facts.core.intervals import EMPTY, Intervals, coverage, merged, union
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import CannotTell, Clear, RuleAnswer
from tb_gpudiag.rules.rule import ERROR_SHARE, Claimed, Rule
from tb_gpudiag.rules.shared.cpu_job import AS_RECORDED, RECORDED, in_overhead, usual_share
from tb_gpudiag.rules.shared.host_findings import (
    freeing_finding,
    general_finding,
    overhead_finding,
    python_finding,
    task_finding,
    task_on_gpu_finding,
)
from tb_gpudiag.rules.shared.host_task_fixes import HOST_TASK_FIXES
from tb_gpudiag.rules.shared.host_time import Case, HostPart
from tb_gpudiag.rules.shared.lost_time import Lost, lost_time
from tb_gpudiag.rules.shared.recording_advice import no_gpu
from tb_gpudiag.rules.shared.repeated import EQUAL, with_repeats
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.torch_frames import HostTask
from tb_gpudiag.wording.format import share, time_ns

# As in launch_bound.py: healthy public traces lose below 1% to the host, host-bound ones 10 to 60%.
LEAST_SHARE = levels.NOTICEABLE

# Host tasks that need not run in every step are reported as soon as their fix is measurable: step times vary
# by 1 to 2% from run to run.
LEAST_TASK_SHARE = levels.MEASURABLE
_RARELY_NEEDED = frozenset({HostTask.GARBAGE, HostTask.LOGGING, HostTask.SAVING, HostTask.SLEEPING})

# A CPU computes in operators: this much of the main thread's time outside of them, or in operators too short
# to compute much, is worth a look. Recording makes both larger: healthy jobs show up to 22%, and a GRU, which
# torch runs as 7,000 small operators, 25%.
LEAST_CPU_SHARE = 0.25

# A loop that calls small operators takes time in them and in Python between them, neither of which has to be
# much: one that fills a mask row by row takes 24% of a step without the profiler. Recorded, it shows 22 to
# 28% and 23%, together 44 to 52%. Healthy jobs show up to 34%.
LEAST_LOOP_SHARE = 0.40

# A single call is slower than those after it. In public recordings of one call that takes less than this, the
# first advice of experts was to record more of them.
SHORTEST_CALL_NS = 20_000_000

# If operators follow each other this quickly, there are too many, and none is slow: on the host of a public
# trace, a view takes 29 us while it is recorded.
MOST_PER_OPERATOR_NS = 50_000

# A step comes to one line of a model a few times, and to a line of a loop over items far more often.
TURNS_OF_A_LOOP = 10

_HOST = np.array([*BETWEEN_CALLS, Cause.DISPATCH, Cause.LAUNCH], np.uint8)


PYTHON_CASES = (
    Case(lambda time: time.call[1], "call", says="Most of it is in {call}."),
    Case(
        lambda time: time.at_one_line(TURNS_OF_A_LOOP),
        "loop",
        says="Each step comes to its line many times, between operators: it is a loop.",
    ),
    Case(lambda time: time.at_a_line, "line"),
)

CASES = (
    Case(lambda time: time.stalled, "cores"),
    Case(
        lambda time: time.share(time.views),
        "intercepted",
        "Slow views of tensors keep",
        "A view of a tensor takes microseconds: something else runs inside of these operators, such as a "
        "tensor subclass, a dispatch mode or a debugging tool.",
        removes=lambda time, _: time.lost.stretches(time.views),
    ),
    Case(lambda time: time.launching, ""),
    *PYTHON_CASES,
    Case(
        lambda time: time.in_operators(MOST_PER_OPERATOR_NS),
        "fewer_operators",
        "Many small CPU operators keep",
        removes=lambda time, own: merged(own, time.lost.stretches(time.chosen)),
    ),
    Case(lambda _: 1.0, "host_work"),
)
"""What keeps a GPU idle."""

CPU_CASES = (
    *PYTHON_CASES,
    Case(lambda _: 1.0, "fewer_operators", says="It runs between many operators, at several lines."),
)
"""What Python between the operators of a job on a CPU is."""


def check(facts: Facts, claimed: Claimed) -> RuleAnswer:
    """Find idle time in Python between operators, and in operators that GD201 does not cover. Each known host
    task, such as logging, is a finding of its own."""
    lost = lost_time(facts, claimed)
    chosen = lost.of(*BETWEEN_CALLS) | (lost.of(Cause.DISPATCH, Cause.LAUNCH) & ~lost.issuing)
    chosen &= ~lost.evaluating
    total_ns, found, reported = lost.total_ns(chosen), [], EMPTY
    for kind, own in _tasks(lost, chosen):
        on_host = _task_time(facts, kind)
        found.append(task_on_gpu_finding(facts, lost, own, kind, on_host, _least_share(kind)))
        reported = merged(reported, on_host)
        chosen &= ~own
    freed_ns = coverage(facts.freeing, lost.start_ns, lost.end_ns)
    frees = chosen & lost.of(*BETWEEN_CALLS) & (2 * freed_ns >= np.maximum(1, lost.length_ns))
    if lost.share(lost.total_ns(frees)) >= LEAST_TASK_SHARE:
        found.append(freeing_finding(facts, lost, frees))
        chosen &= ~frees
    if lost.share(lost.total_ns(chosen)) >= LEAST_SHARE:
        found.append(general_finding(HostPart(facts, lost, chosen), CASES, reported, LEAST_SHARE))
    idle = share(total_ns, lost.window_ns)
    return sorted(found, key=lambda f: -f.cost_ns) or Clear(
        f"Python and slow CPU operators keep the GPU idle {idle} of the step window"
    )


def _tasks(lost: Lost, chosen: Bool) -> list[tuple[HostTask, Bool]]:
    """The host tasks with findings of their own, and which of the chosen segments each takes."""
    parts = [(kind, chosen & (lost.task == kind)) for kind in HOST_TASK_FIXES]
    return [(kind, own) for kind, own in parts if lost.share(lost.total_ns(own)) >= _least_share(kind)]


_UNSEEN_GPU = (
    "The GPU was not recorded, and may work meanwhile. But for most of the time the main thread launches "
    "nothing, so that each step takes at least as long."
)


def _unseen(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    """Host tasks that take most of the main thread's time."""
    lost = lost_time(facts)
    tasks = [task_finding(facts, lost, own, kind) for kind, own in _tasks(lost, ~lost.evaluating)]
    most = [replace(one, summary=_UNSEEN_GPU) for one in tasks if 2 * one.cost_ns >= lost.window_ns]
    return most or replace(no_gpu(facts), reason="without GPU activity, what the host delays is unknown")


def _least_share(kind: HostTask) -> float:
    return LEAST_TASK_SHARE if kind in _RARELY_NEEDED else LEAST_SHARE


def _on_cpu(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    """The main thread's time in host tasks, in Python between operators, and in operators that are mostly
    overhead."""
    lost = lost_time(facts)
    if not len(facts.steps) and lost.window_ns < SHORTEST_CALL_NS:
        return CannotTell(
            f"the recording is one call of {time_ns(lost.window_ns)}, and first calls are slower",
            "Record several iterations, after a few that are not recorded.",
        )
    free = lost.of(*BETWEEN_CALLS, Cause.DISPATCH, Cause.LAUNCH, Cause.ALLOCATOR) & ~lost.evaluating
    found = []
    for kind, own in _tasks(lost, free):
        found.append(task_finding(facts, lost, own, kind))
        free &= ~own
    python = free & lost.of(*BETWEEN_CALLS)
    overhead = free & in_overhead(lost, facts.host_work.small_operators)
    both = lost.stretches(python | overhead)
    if usual_share(facts, lost, python, RECORDED) >= LEAST_CPU_SHARE:
        found.append(python_finding(HostPart(facts, lost, python), CPU_CASES, both))
    much = usual_share(facts, lost, overhead, AS_RECORDED) >= LEAST_CPU_SHARE
    looped = python | overhead if overhead.any() and not found else overhead
    if much or usual_share(facts, lost, looped, AS_RECORDED) >= LEAST_LOOP_SHARE:
        small = overhead_finding(HostPart(facts, lost, overhead), both)
        found.append(with_repeats(small, facts, lost, overhead, [EQUAL]))
    return sorted(found, key=lambda f: -f.cost_ns) or Clear(
        f"Python and the overhead of small operators take {share(both.total, lost.window_ns)} of the main "
        "thread's time"
    )


def _task_time(facts: Facts, kind: HostTask) -> Intervals:
    """The main thread's time in this kind of task, whether or not the GPU was idle, without data loading."""
    main_thread = facts.main_thread_spans
    some = np.isin(main_thread.cause, _HOST) & (facts.host_work.tasks.of(main_thread.event) == kind)
    return union(main_thread.start_ns[some], main_thread.end_ns[some])


RULE = Rule(
    "GD102",
    "host_bound",
    "Host-bound",
    check,
    on_cpu=_on_cpu,
    unseen=_unseen,
    error_share=ERROR_SHARE,
    topic="python",
)
