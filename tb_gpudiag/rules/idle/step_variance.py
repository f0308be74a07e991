"""GD106: some steps take longer than the others."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.intervals import Intervals, coverage
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.stepping.variance import StepTimes, only_in
from tb_gpudiag.facts.waiting.host_tasks import Chore, chore_of
from tb_gpudiag.rules.rule import (
    NOTHING_CLAIMED,
    Answer,
    CannotTell,
    Claimed,
    Clear,
    Evidence,
    Finding,
    Fix,
    Place,
    Range,
    Rule,
    Saving,
    Severity,
)
from tb_gpudiag.rules.shared.host_task_fixes import CHORES
from tb_gpudiag.rules.shared.lost_time import IDLE, NO_DEVICE, lost_time, places
from tb_gpudiag.rules.shared.slow_start import leading_slow_steps
from tb_gpudiag.trace.events import NONE, Int64
from tb_gpudiag.wording.format import count, one_line, share, time_ns

# Steady steps of public traces lie within 6 % of their median, uneven ones 20 to 35 % above it.
SLOW_RATIO = 1.2

# Step times vary by 1-2 % from run to run: less than that nobody can measure after the fix.
LEAST_SHARE = 0.02

# From here on uneven steps are one of the larger things that a job loses.
WARNING_SHARE = 0.10

# The first one is no measure (work from before it can be in it), and of two others neither is the usual one.
FEWEST_STEPS = 4

# What only the slow steps did is worth a line if it took this much of what they took longer.
ONLY_SHARE = 0.1

_STEPS_SHOWN = 5
_PARTS_SHOWN = 3

_COMPUTING = "computing"
_WORK = (_COMPUTING, "communicating, not hidden", "copying, not hidden")


def check(facts: Facts, _claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    """Steps that take longer than the median one, part by part against the others."""
    steps = facts.step_times
    if steps is None or len(steps) < FEWEST_STEPS:
        known = len(steps) if steps is not None else 0
        return CannotTell(
            f"it takes {FEWEST_STEPS} steps to compare them, and the trace has {known}",
            "Record six steps or more after warming up: schedule(wait=1, warmup=2, active=6).",
        )
    length = steps.times.end_ns - steps.times.start_ns
    compared = np.arange(max(1, leading_slow_steps(length)[0]), len(steps))
    if len(compared) < FEWEST_STEPS - 1:
        return CannotTell(
            f"after the warm-up {count(len(compared), 'step')} can be compared, and it takes "
            f"{FEWEST_STEPS - 1}",
            "Skip more steps before recording: raise wait and warmup in the schedule.",
        )
    usual_ns = float(np.median(length[compared]))
    if usual_ns <= 0:
        return CannotTell("most steps have no GPU work in the trace")
    slow = compared[length[compared] > SLOW_RATIO * usual_ns]
    excess_ns = int((length[slow] - usual_ns).sum())
    window_ns = facts.window.duration_ns
    if excess_ns < LEAST_SHARE * window_ns or not len(slow):
        slowest = int(length[compared].max())
        return Clear(f"the slowest step took {time_ns(slowest)}, the median one {time_ns(usual_ns)}")
    others = np.setdiff1d(compared, slow)
    return _finding(facts, steps, slow, others, excess_ns, usual_ns)


def _finding(
    facts: Facts, steps: StepTimes, slow: Int64, others: Int64, excess_ns: int, usual_ns: float
) -> Finding:
    times, window_ns = steps.times, facts.window.duration_ns
    length = times.end_ns - times.start_ns
    grown = _grown(steps, slow, others)
    cause = next((c for label, _, c in grown[:1] if c is not None), None)
    main = grown[0][0] if grown else ""
    slowest = slow[np.argsort(-length[slow], kind="stable")]
    chosen = np.zeros(len(steps), np.bool_)
    chosen[slow] = True
    only = [(name, ns) for name, ns in only_in(facts.host, steps, chosen) if ns >= ONLY_SHARE * excess_ns]
    named = "" if facts.recorded.steps else "inferred "
    ratio = length[slow].max() / usual_ns
    work = _work(steps, slow, others)
    return Finding(
        title=f"{count(len(slow), f'{named}step')} of {len(steps)} took up to {ratio:.1f} times the median",
        summary=f"What grew most in them is {main}. "
        + (f"Only they ran {one_line(only[0][0], 120)}. " if only else "")
        + "What an average over steps says is mixed from both kinds of step.",
        fix=_fix(cause, main, only, same=not work),
        saving=Saving(0, excess_ns, "at most; other findings count the same time"),
        evidence=[
            Evidence("median step", time_ns(usual_ns)),
            Evidence(
                "slow steps",
                ", ".join(f"{times.names[i]} {time_ns(int(length[i]))}" for i in slowest[:_STEPS_SHOWN]),
            ),
            Evidence(
                "longer than the median", f"{time_ns(excess_ns)}, {share(excess_ns, window_ns)} of the window"
            ),
            *(Evidence(f"more {label}", time_ns(ns)) for label, ns, _ in grown[:_PARTS_SHOWN]),
            *work,
            *(Evidence("only in slow steps", f"{one_line(name)} {time_ns(ns)}") for name, ns in only),
        ],
        places=_places(facts, steps, slow, others, cause),
        ranges=[
            Range(
                int(times.start_ns[i]), int(times.end_ns[i]), facts.device.id if facts.device else NO_DEVICE
            )
            for i in slowest
        ],
        severity=Severity.WARNING if excess_ns >= WARNING_SHARE * window_ns else Severity.INFO,
    )


def _grown(steps: StepTimes, slow: Int64, others: Int64) -> list[tuple[str, int, Cause | None]]:
    """(part, ns more in all slow steps than in as many others, its cause if it is idle), the largest
    first."""
    times = steps.times
    work = zip(_WORK, (times.computing_ns, times.communicating_ns, times.copying_ns), strict=True)
    parts: list[tuple[str, Int64, Cause | None]] = [(label, ns, None) for label, ns in work]
    parts += [(IDLE[cause], times.idle_ns[:, cause], cause) for cause in Cause]
    more = [
        (label, int(ns[slow].sum() - len(slow) * np.median(ns[others])), cause) for label, ns, cause in parts
    ]
    return sorted((part for part in more if part[1] > 0), key=lambda part: -part[1])


def _work(steps: StepTimes, slow: Int64, others: Int64) -> list[Evidence]:
    """How much GPU work was launched, where it differs: then the slow steps do something else."""
    own, usual = float(np.median(steps.work[slow])), float(np.median(steps.work[others]))
    if own == usual:
        return []
    return [Evidence("kernels and copies in a slow step", f"{own:,.0f}, in another {usual:,.0f}")]


def _places(facts: Facts, steps: StepTimes, slow: Int64, others: Int64, cause: Cause | None) -> list[Place]:
    """Where in the code the cause took longer than in the other steps."""
    if cause is None:
        return []
    lost, times = lost_time(facts.window, facts.device, facts.host_pieces), steps.times
    some = lost.of(cause) & (lost.event != NONE)
    start, end, event = lost.start_ns[some], lost.end_ns[some], lost.event[some]
    frame = facts.host.place[event]

    def inside(chosen: Int64) -> Int64:
        return coverage(Intervals(times.start_ns[chosen], times.end_ns[chosen]), start, end)

    own = inside(slow)
    _, member = np.unique(frame, return_inverse=True)
    in_slow = np.bincount(member, weights=own)
    expected = np.bincount(member, weights=inside(others)) * len(slow) / len(others)
    more = np.maximum(in_slow - expected, 0) / np.maximum(in_slow, 1)
    weight = np.rint(own * more[member]).astype(np.int64)
    return [place for place in places(facts.host, event, weight) if place.time_ns]


def _fix(cause: Cause | None, main: str, only: list[tuple[str, int]], *, same: bool) -> Fix:
    chores = [chore for name, _ in only if (chore := chore_of(name)) is not None]
    if chores:
        return CHORES[chores[0]].fix
    if cause in {Cause.COMPILE, Cause.ALLOCATOR}:
        return Fix("Look for what changes from step to step: other shapes compile and allocate again.")
    if only:
        return Fix(
            "Do what only these steps do seldom, elsewhere, or beside the training.",
            CHORES[Chore.SAVING].fix.code,
        )
    if cause is Cause.INPUT:
        return Fix(
            "Batches do not come evenly: give the loader more workers and a larger prefetch_factor, and look "
            "at the items that take long."
        )
    if not same:
        return Fix("Look at what these steps launch and others do not, such as an evaluation.")
    if main == _COMPUTING:
        return Fix(
            "As many kernels took longer: look for longer sequences, and whether the GPU was shared or "
            "throttled."
        )
    return Fix(
        "These steps launched as much as the others, and did it more slowly: record again, and look what "
        "else ran on the machine if it is still so."
    )


RULE = Rule("GD106", "step_variance", "Uneven steps", check, severity=Severity.INFO)
