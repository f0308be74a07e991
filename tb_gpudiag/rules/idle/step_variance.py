"""GD106: some steps take longer than the others."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cached_property
from importlib import resources

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.core.causes import BETWEEN_CALLS, Cause
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Intervals, coverage
from tb_gpudiag.facts.core.steady import leading_slow_steps
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.stepping.pattern import Pattern, Shape, find_pattern
from tb_gpudiag.facts.stepping.variance import MeasuredSteps, only_in, optimizer_only_in
from tb_gpudiag.facts.waiting.host_tasks import host_task_of
from tb_gpudiag.facts.waiting.job_kind import JobKind
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.rules.answer import (
    CannotTell,
    Clear,
    Evidence,
    Finding,
    Fix,
    Place,
    Range,
    RuleAnswer,
    Saving,
    Severity,
)
from tb_gpudiag.rules.doubts import not_comparable
from tb_gpudiag.rules.rule import Claimed, Rule
from tb_gpudiag.rules.shared.grown_parts import COMPUTING, what_grew
from tb_gpudiag.rules.shared.host_task_fixes import HOST_TASK_FIXES, host_task_fix
from tb_gpudiag.rules.shared.lost_time import MOSTLY_UNSEEN, NO_DEVICE, Lost, lost_time, places, unseen
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.frames import parse_frame
from tb_gpudiag.vocabulary.torch_frames import HostTask
from tb_gpudiag.wording.format import count, in_quotes, ordinal, time_ns
from tb_gpudiag.wording.quantity import Quantity, duration, number, ratio

# Step times vary by 1 to 2% from run to run, so a smaller effect of the fix could not be measured.
LEAST_SHARE = levels.MEASURABLE

# From here on, uneven steps are among the larger losses of a job.
WARNING_SHARE = levels.SIZEABLE

# The first step is excluded, since it can contain earlier work. Of two others, neither is the usual one.
FEWEST_STEPS = 4

# On a CPU, other processes take the core from whatever a step does, and from its operators as well. If these
# grew by this much of what grew most, that is why.
SAME_GREW = levels.HALF

# Things that only slow steps do are listed if they take at least this share of the extra time.
ONLY_SHARE = levels.SIZEABLE

_FIXES = json.loads(resources.files(__package__).joinpath("step_variance.json").read_text(encoding="utf-8"))
"""What to do: by shape, if slow steps launch as much as the others, and do nothing that the others do not."""

_SAME_OPERATORS = (None, Cause.DISPATCH)
"""What grows if a CPU takes longer for the same operators."""

_STEPS_SHOWN, _PARTS_SHOWN = 5, 3


@dataclass(frozen=True, eq=False)
class _Uneven:
    """Slow steps and the others they are compared with. length_ns: of every step, shape (k,)."""

    steps: MeasuredSteps
    pattern: Pattern
    length_ns: Int64

    @property
    def slow(self) -> Int64:
        return self.pattern.slow

    @property
    def others(self) -> Int64:
        return self.pattern.others

    @cached_property
    def usual_ns(self) -> float:
        """Median length of the other steps."""
        return float(np.median(self.length_ns[self.others]))

    @cached_property
    def excess_ns(self) -> int:
        """How much longer the slow steps took than as many median ones; 0 if those take no time."""
        more_ns = int((self.length_ns[self.slow] - self.usual_ns).sum())
        return more_ns if self.usual_ns > 0 else 0

    @cached_property
    def slowest(self) -> Int64:
        """The slow steps, slowest first."""
        return self.slow[np.argsort(-self.length_ns[self.slow], kind="stable")]

    @cached_property
    def grown(self) -> list[tuple[str, int, Cause | None]]:
        return what_grew(self.steps, self.slow, self.others)


def check(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    """Find steps that take longer than the median, and compare them part by part with the others."""
    return not_comparable(facts) or _check(facts)


def _check(facts: Facts) -> RuleAnswer:
    steps = facts.step_times
    if len(steps) < FEWEST_STEPS:
        return CannotTell(
            f"comparing steps takes at least {FEWEST_STEPS} of them, and the trace has {len(steps)}",
            "Record six steps or more after warming up: schedule(wait=5, warmup=2, active=6).",
        )
    length = steps.length_ns
    compared = np.arange(max(1, leading_slow_steps(length)[0]), len(steps))
    if len(compared) < FEWEST_STEPS - 1:
        return CannotTell(
            f"comparing steps takes at least {FEWEST_STEPS - 1} of them after the warm-up, and the trace has "
            f"{len(compared)}",
            "Skip more steps before recording: raise wait and warmup in the schedule.",
        )
    if facts.device is not None and not np.median(steps.work[compared]):
        return CannotTell("most steps have no GPU work in the trace")
    pattern = find_pattern(length, leading_slow_steps(length)[0])
    least_ns = max(1.0, LEAST_SHARE * facts.window.duration_ns)
    if pattern is None or _Uneven(steps, pattern, length).excess_ns < least_ns:
        slowest, usual_ns = int(length[compared].max()), float(np.median(length[compared]))
        return Clear(f"the slowest step took {time_ns(slowest)}, the median {time_ns(usual_ns)}")
    uneven = _Uneven(steps, pattern, length)
    slow = np.isin(np.arange(len(steps)), uneven.slow)
    if pattern.shape is Shape.PERIODIC and optimizer_only_in(facts.host, steps, slow):
        return Clear(f"every {ordinal(pattern.period)} step runs the optimizer: gradients are accumulated")
    if pattern.shape is Shape.SLOWER and _caught_up(uneven, facts.steady.earlier_ns):
        return Clear("the first steps are shorter because the GPU ran them right after earlier work")
    return _compared(uneven, slow, facts)


def _caught_up(uneven: _Uneven, earlier_ns: int) -> bool:
    """Whether the first steps can be short on the GPU because they were launched while it ran earlier work:
    no more than this time can be saved so."""
    saved_ns = (np.median(uneven.length_ns[uneven.slow]) - uneven.length_ns[uneven.others]).sum()
    return bool(saved_ns <= earlier_ns)


def _compared(uneven: _Uneven, slow: Bool, facts: Facts) -> Finding | Clear:
    """Compare slow steps with the others. slow: mask of the steps."""
    least_ns = ONLY_SHARE * uneven.excess_ns
    only = [one for one in only_in(facts.host, uneven.steps, slow) if one[1] >= least_ns]
    lost = lost_time(facts)
    found = _finding(uneven, only, facts.host, lost, facts.job, inferred=not facts.recorded.steps)
    is_unseen = _is_unseen(uneven, lost, facts)
    if facts.device is None:
        # Under a load a process loses its core wherever it is, so any part of a single step may grow.
        single, same = uneven.pattern.shape is Shape.SINGLE, _runs_the_same_longer(uneven)
        if single and same and not only and not _work(uneven, ""):
            return Clear(f"{found.title}, and its operators did as well: others may have had the core")
        if is_unseen or ((single or same) and not only):
            found = replace(found, severity=Severity.INFO)
    return replace(found, sure=not is_unseen)


def _is_unseen(uneven: _Uneven, lost: Lost, facts: Facts) -> bool:
    """Whether the trace does not show what most of the extra time is."""
    cause = next((cause for _, _, cause in uneven.grown), None)
    python = lost.of(*BETWEEN_CALLS)
    unseen_ns = lost.total_ns(python & unseen(lost, facts))
    return cause in BETWEEN_CALLS and unseen_ns >= MOSTLY_UNSEEN * lost.total_ns(python)


def _runs_the_same_longer(uneven: _Uneven) -> bool:
    """Whether slow steps take longer for the same operators, as they do beside other processes on a CPU."""
    same_ns = sum(ns for _, ns, cause in uneven.grown if cause in _SAME_OPERATORS)
    return not uneven.grown or same_ns >= SAME_GREW * uneven.grown[0][1]


def _finding(
    uneven: _Uneven, only: list[tuple[str, int]], host: Host, lost: Lost, job: JobKind, *, inferred: bool
) -> Finding:
    """only: (name, ns) of what only slow steps ran."""
    times, length_ns = uneven.steps.times, uneven.length_ns
    slowest, excess_ns, grown = uneven.slowest, uneven.excess_ns, uneven.grown
    main, cause = (grown[0][0], grown[0][2]) if grown else ("", None)
    work = _work(uneven, "Operators" if lost.device == NO_DEVICE else "Kernels and copies")
    longest = ratio(length_ns[slowest[0]] / uneven.usual_ns, "the median")
    return Finding(
        title=_title(uneven, longest, inferred=inferred),
        summary=f"Compared with the other steps, {main} grew most. "
        + (f"Only slow steps ran {in_quotes(_shown(only[0][0]), 120)}. " if only else "")
        + "Averages over all steps mix slow and normal ones.",
        fix=_fix(uneven.pattern, cause, main, only, job, same=not work),
        saving=Saving(0, excess_ns, "at most; other findings count the same time"),
        evidence=[
            Evidence("Median of the other steps", duration(uneven.usual_ns)),
            Evidence(
                "Slow steps",
                number(len(slowest), "step"),
                tuple(duration(int(length_ns[i]), f"({times.names[i]})") for i in slowest[:_STEPS_SHOWN]),
            ),
            Evidence("Slowest step", longest),
            Evidence.of_window("Longer than the median", excess_ns, lost.window_ns),
            *(Evidence(f"Extra {label}", duration(ns)) for label, ns, _ in grown[:_PARTS_SHOWN]),
            *work,
            *(Evidence("Only in slow steps", in_quotes(_shown(name)), (duration(ns),)) for name, ns in only),
        ],
        places=_places(uneven, host, lost, cause) if cause is not None else [],
        ranges=[Range(int(times.start_ns[i]), int(times.end_ns[i]), lost.device) for i in slowest],
        severity=Severity.WARNING if excess_ns >= WARNING_SHARE * lost.window_ns else Severity.INFO,
    )


def _shown(name: str) -> str:
    """A span's name; a Python frame as places are written."""
    return str(parse_frame(name) or name)


_ANOTHER_LEVEL = "Steps {slow} took {slower} as long as steps {others}"

_TITLES = {
    Shape.SINGLE: "{steps} of {of} took up to {longest}",
    Shape.PERIODIC: "Every {period} step took {slower} the median of the others",
    Shape.SLOWER: _ANOTHER_LEVEL,
    Shape.FASTER: _ANOTHER_LEVEL,
    Shape.RISING: "Steps take longer and longer: the second half {slower} as long as the first",
    Shape.FALLING: "Steps take less and less time: the first half {slower} as long as the second",
}


def _title(uneven: _Uneven, longest: Quantity, *, inferred: bool) -> str:
    slow, others = (f"{steps[0] + 1}–{steps[-1] + 1}" for steps in (uneven.slow, uneven.others))
    return _TITLES[uneven.pattern.shape].format(
        steps=count(len(uneven.slow), "inferred step" if inferred else "step"),
        of=len(uneven.steps),
        longest=longest,
        period=ordinal(uneven.pattern.period),
        slow=slow,
        others=others,
        slower=ratio(float(np.median(uneven.length_ns[uneven.slow])) / uneven.usual_ns),
    )


def _work(uneven: _Uneven, what: str) -> list[Evidence]:
    """Their number per step, if slow steps have notably more or fewer than the others."""
    work = uneven.steps.work
    own, usual = float(np.median(work[uneven.slow])), float(np.median(work[uneven.others]))
    if abs(own - usual) < levels.NOTICEABLE * usual:
        return []
    return [Evidence(what, number(own, suffix="per slow step"), (number(usual, suffix="per other step"),))]


def _places(uneven: _Uneven, host: Host, lost: Lost, cause: Cause) -> list[Place]:
    """Places in the code where this cause took longer in slow steps than in the others."""
    times, slow, others = uneven.steps.times, uneven.slow, uneven.others
    some = lost.of(cause) & (lost.event != NONE)
    start, end, event = lost.start_ns[some], lost.end_ns[some], lost.event[some]
    frame = host.place[event]

    def inside(chosen: Int64) -> Int64:
        return coverage(Intervals(times.start_ns[chosen], times.end_ns[chosen]), start, end)

    own = inside(slow)
    _, member = np.unique(frame, return_inverse=True)
    in_slow = np.bincount(member, weights=own)
    expected = np.bincount(member, weights=inside(others)) * len(slow) / len(others)
    more = np.maximum(in_slow - expected, 0) / np.maximum(in_slow, 1)
    weight = np.rint(own * more[member]).astype(np.int64)
    return [place for place in places(host, event, weight) if place.time_ns]


def _fix(
    pattern: Pattern, cause: Cause | None, main: str, only: list[tuple[str, int]], job: JobKind, *, same: bool
) -> Fix:
    """main: name of the part that grew most; only: (name, ns) of what only slow steps ran; same: slow steps
    launch as much as the others."""
    tasks = [task for name, _ in only if (task := host_task_of(name)) in HOST_TASK_FIXES]
    if tasks:
        return host_task_fix(tasks[0], job)
    cases = (
        (cause is Cause.ALLOCATOR and same and not only, "memory"),
        (cause in {Cause.COMPILE, Cause.ALLOCATOR}, "shapes"),
        (only, "only"),
        (cause is Cause.INPUT and pattern.shape is Shape.PERIODIC, "in_turns"),
        (cause is Cause.INPUT, "batches"),
        (cause is Cause.WAITING, "waiting"),
        (not same, "more"),
        (main == COMPUTING, "computing"),
        (True, pattern.shape.name.lower()),
    )
    case = next(case for holds, case in cases if holds)
    code = {"only": HOST_TASK_FIXES[HostTask.SAVING].fix.code}.get(case, "")
    return Fix(_FIXES[case].format(period=pattern.period), code, general=not code)


RULE = Rule("GD106", "step_variance", "Uneven steps", check, severity=Severity.INFO, topic="steps")
