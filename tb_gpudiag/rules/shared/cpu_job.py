"""Jobs without a GPU: where the main thread's time goes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64, marked, summed
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.waiting.interruptions import stalled_spans
from tb_gpudiag.facts.waiting.overhead import LEAST, MOST, EventCosts
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.rules.shared.lost_time import CLEAR_LEAD, ISSUING, LIMITER_SHARE, Lost
from tb_gpudiag.vocabulary.torch_frames import HostTask

COMMUNICATES = (Cause.COLLECTIVE, Cause.SYNC)
"""Causes of a thread without a GPU that waits for other ranks."""

# Of fewer steps, none is the usual one.
_FEWEST_STEPS = 3

# What recording adds to Python: at most for the operators before and after it, and surely for each frame.
# Frames may take eight times as long, but that would hide Python of many functions, such as a progress bar.
RECORDED = replace(LEAST, operator=MOST.operator)

# Small operators are many with and without the recorder, which takes as long as some of them.
AS_RECORDED = EventCosts(0, 0, 0)


@dataclass(frozen=True, eq=False)
class CpuTime:
    """The main thread's time. computing: mask of it in operators that compute, shape (s,)."""

    window_ns: int
    computing: Bool
    computing_ns: int
    overhead_ns: int  # in small operators
    python_ns: int
    evaluating_ns: int
    task_ns: Int64  # in each other HostTask, with the operators in it
    waiting_ns: int
    profiler_ns: int
    compiling_ns: int
    input_ns: int
    communicating_ns: int

    @property
    def others(self) -> dict[str, int]:
        """What each limiter other than computing would account for. "host" is told apart later."""
        return {
            "input": self.input_ns,
            "host": sum(self.host.values()),
            "waiting": self.waiting_ns,
            "communication": self.communicating_ns,
        }

    @property
    def host(self) -> dict[str, int]:
        return {
            "compile": self.compiling_ns,
            "overhead": self.overhead_ns,
            "python": self.python_ns,
            "evaluation": self.evaluating_ns,
            "tasks": int(self.task_ns.sum()),
        }

    @property
    def computing_limits(self) -> bool:
        """Whether computing takes clearly longer than any other single part, and no less than those of the
        host together."""
        others = self.others
        most_ns = max(others.values())
        single_ns = max(others["input"], others["waiting"], others["communication"], *self.host.values())
        leads = self.computing_ns >= max(CLEAR_LEAD * single_ns, most_ns)
        return leads or most_ns < LIMITER_SHARE * self.window_ns


def cpu_time(lost: Lost, small_operators: Bool) -> CpuTime:
    """Split the main thread's time. small_operators: mask of events."""
    tasks, rest = lost.task != NONE, ~lost.evaluating
    busy = tasks & rest & lost.of(Cause.PYTHON, Cause.HOST, *ISSUING, Cause.ALLOCATOR)
    overhead = in_overhead(lost, small_operators) & ~tasks
    computing = lost.of(*ISSUING, Cause.ALLOCATOR) & ~overhead & ~tasks
    return CpuTime(
        window_ns=lost.window_ns,
        computing=computing,
        computing_ns=lost.total_ns(computing),
        overhead_ns=lost.total_ns(overhead),
        python_ns=lost.total_ns(lost.of(Cause.PYTHON, Cause.HOST) & ~tasks),
        evaluating_ns=lost.total_ns(lost.evaluating),
        task_ns=summed(lost.task[busy], lost.length_ns[busy], len(HostTask)),
        waiting_ns=lost.total_ns(lost.of(Cause.WAITING)),
        profiler_ns=lost.total_ns(lost.of(Cause.PROFILER) & rest),
        compiling_ns=lost.total_ns(lost.of(Cause.COMPILE) & rest),
        input_ns=lost.total_ns(lost.of(Cause.INPUT) & rest),
        communicating_ns=lost.total_ns(lost.of(*COMMUNICATES) & rest),
    )


def in_overhead(lost: Lost, small_operators: Bool) -> Bool:
    """Mask of time in operators that compute little, shape (s,). small_operators: mask of events."""
    return lost.of(Cause.DISPATCH, Cause.LAUNCH, Cause.ALLOCATOR) & marked(small_operators, lost.event)


def usual_share(facts: Facts, lost: Lost, chosen: Bool, costs: EventCosts) -> float:
    """Return which share of the usual step this time of the main thread takes.

    A pause in one step, as of a garbage collector that runs by itself, is not usual. Nor are pauses now and
    then in frames that usually take no time, if operators have them, too: others had the thread's core, and
    the time without it is none of the job's, whatever it interrupted.

    chosen: mask of the time. costs: of recording what begins in a stretch of it, or right after it.
    """
    rest = ~chosen
    if facts.host_work.interruptions.several and facts.recorded.stacks:
        stalled = lost.event != NONE
        stalled[stalled] = stalled_spans(facts.host, lost.event[stalled], lost.length_ns[stalled])
        chosen, rest = chosen & ~stalled, rest & ~stalled
    stretches, others = lost.stretches(chosen), lost.stretches(rest)
    recorded_ns = facts.host_work.recorder_cost.within(stretches.start, stretches.end, costs) + costs.operator
    left_ns = np.maximum(0, stretches.end - stretches.start - recorded_ns)
    steps = facts.steps if len(facts.steps) >= _FEWEST_STEPS else None
    own_ns, others_ns = (
        _by_step(steps, at.start, ns)
        for at, ns in ((stretches, left_ns), (others, others.end - others.start))
    )
    usual_ns = float(np.median(own_ns))
    return usual_ns / max(1.0, usual_ns + float(np.median(others_ns)))


def _by_step(steps: Steps | None, start_ns: Int64, length_ns: Int64) -> Int64:
    """Add up lengths by the step in which they begin; None is one step."""
    if steps is None:
        return np.array([length_ns.sum()], np.int64)
    step = np.maximum(0, np.searchsorted(steps.start_ns, start_ns, side="right") - 1)
    return summed(step, length_ns, len(steps))
