"""Labels: which rules must report a case, and which must not, from the simulator's truth alone."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from itertools import zip_longest

from tests.benchmarks.truth.cases import PARTIAL_KIND, UNLINKED_KIND, Case
from tests.simulator import Simulated, Truth
from tests.simulator.gpu_truth import unevenness
from tests.simulator.job import SLOWER_FROM, Job
from tests.simulator.machine import SLOW_OPERATOR_NS

MUST, MUST_NOT = 1.25, 0.8
"""Multiples of a rule's threshold: from the first, the rule must report; below the second, it must not.
Between them a little noise decides, so it may do either and is not counted."""

# The rules' own thresholds, as their pages state them: shares of the step window unless a comment says
# otherwise.
THRESHOLDS = {
    "GD101": 0.05,
    "GD102": 0.05,
    "GD103": 0.01,
    "GD104": 0.02,
    "GD105": 0.05,
    "GD106": 1,  # see unevenness
    "GD201": 0.05,
    "GD202": 0.02,
    "GD301": 0.02,
    "GD302": 0.02,
    "GD303": 0.02,
    "GD304": 0.05,
    "GD401": 4_096,  # bytes per step
    "GD402": 1,  # a tenth of the device, divided by the head-room at the peak
    "GD403": 1,  # the smaller of its two figures, each divided by its threshold
    "GD405": 4_096,  # bytes per step
    "GD501": 0.05,
    "GD502": 0.05,
    "GD503": 0.05,
    "GD504": 0.05,
    "GD506": 0.05,
    "GD508": 0.10,
    "GD601": 0.10,
    "GD901": 0.5,  # 1 where no step is marked
    "GD902": 2.0,  # the first step, divided by the median of the others
    "GD903": 0.5,  # 1 where no stack is recorded
    "GD904": 0.01,  # share of the window that is idle until work without a launch begins
    "GD906": 0.5,  # 1 where the file is cut
}
RULES = tuple(THRESHOLDS)
LEAST_TASK = 0.02  # share of the window, of a host task that need not run in every step
LEAK_STEPS = 4  # the first is excused
LOOPING = ("python", "dispatch", "launch", "latency")


@dataclass(frozen=True)
class Labels:
    """Rule ids. A rule in neither set is not counted."""

    must: frozenset[str]
    must_not: frozenset[str]


def label(case: Case, run: Simulated) -> Labels:
    """Label a case. For a spoilt file only the rule about what spoils it counts: the rest may be lost with
    it."""
    figures = [_figures(case, run, steady) for steady in _steady_truths(case, run.truth)]
    spoilt_by = {UNLINKED_KIND: "GD904", PARTIAL_KIND: "GD906"}.get(case.kind)
    judged = [rule for rule in RULES if spoilt_by in (None, rule)]
    return Labels(
        frozenset(rule for rule in judged if all(f[rule] >= MUST * THRESHOLDS[rule] for f in figures)),
        frozenset(rule for rule in judged if all(f[rule] < MUST_NOT * THRESHOLDS[rule] for f in figures)),
    )


def _steady_truths(case: Case, truth: Truth) -> list[Truth]:
    """Return the truth over the step window, which leaves a slow first step out. Both, where a little noise
    decides whether the step is slow."""
    slowness = _first_step(truth) / THRESHOLDS["GD902"] if case.job.with_steps else 0.0
    if slowness < MUST_NOT:
        return [truth]
    begin = truth.steps[1].start_ns
    later = replace(
        truth,
        steps=truth.steps[1:],
        window_start_ns=begin,
        segments=[segment for segment in truth.segments if segment.start_ns >= begin],
    )
    return [later] if slowness >= MUST else [truth, later]


def _figures(case: Case, run: Simulated, steady: Truth) -> dict[str, float]:
    truth = run.truth
    lost = {rule: ns / steady.window_ns for rule, ns in costs_ns(steady).items()}
    # Frames identify this task, and its threshold is lower; the first generation has no frames.
    if case.job.collect_us and case.job.with_stacks and case.generation != "A":
        lost["GD102"] *= THRESHOLDS["GD102"] / LEAST_TASK
    return {
        **lost,
        **_memory_figures(case, run),
        **_gpu_figures(truth),
        "GD901": float(not case.job.with_steps),
        # Without step marks, steps may or may not be inferred.
        "GD106": _uneven(case.job, truth) if case.job.with_steps else THRESHOLDS["GD106"],
        "GD902": _first_step(truth) if case.job.with_steps else THRESHOLDS["GD902"],
        "GD903": float(not case.job.with_stacks),
        "GD904": _unexplained_ns(run, steady) / steady.window_ns,
        "GD906": float(case.kept < 1),
    }


def _unexplained_ns(run: Simulated, truth: Truth) -> int:
    """Idle time that ends with work whose launch was lost: nothing in the file says why the GPU waited."""
    unlaunched = {span.start_ns for span in run.recording.gpu if span.correlation is None}
    total = gap_ns = 0
    for segment, later in zip_longest(truth.segments, truth.segments[1:]):
        gap_ns += segment.end_ns - segment.start_ns
        if later is None or later.start_ns > segment.end_ns:  # work begins here
            total += gap_ns if segment.end_ns in unlaunched else 0
            gap_ns = 0
    return total


def _memory_figures(case: Case, run: Simulated) -> dict[str, float]:
    """Return the figures of the rules on memory.

    0 where no memory is recorded. The rule's threshold itself, so that the rule may do either, where the
    trace lacks what the rule needs to be sure.
    """
    figures = dict.fromkeys(("GD401", "GD402", "GD403", "GD405"), 0.0)
    if not case.job.with_memory:
        return figures
    can_tell = case.job.with_steps and len(run.truth.steps) >= LEAK_STEPS
    for memory in run.truth.memory:
        rule = "GD405" if memory.device is None else "GD401"
        leaks = memory.behaviour == "leak"
        figures[rule] = memory.slope_bytes if can_tell else THRESHOLDS[rule] * leaks
        if memory.device is None or case.generation == "A":  # that generation has no totals
            continue
        capacity, peak = memory.capacity_bytes, memory.peak_bytes
        reserved = memory.peak_reserved_bytes
        figures["GD402"] = 0.1 * capacity / max(1, capacity - peak)
        figures["GD403"] = min(reserved / peak / 1.5, (reserved - peak) / capacity / 0.1)
    return figures


def costs_ns(truth: Truth) -> dict[str, int]:
    """Return what each rule's subject costs over the step window, every nanosecond once."""
    cost = dict.fromkeys(("GD101", "GD102", "GD103", "GD104", "GD105", "GD201", "GD202", "GD301"), 0)
    of_cause = {
        "input": "GD101",
        "allocator": "GD103",
        "compile": "GD104",
        "queued": "GD105",
        "python": "GD102",
    }
    for segment in truth.segments:
        if segment.in_trip:
            continue
        cost["GD301"] += segment.drained_ns
        length = segment.end_ns - segment.start_ns
        rest = length - segment.drained_ns
        dry = segment.trigger in ("starved", "drained")
        if segment.in_loop and dry and segment.cause in LOOPING:
            cost["GD202"] += rest
        elif segment.cause in of_cause:
            cost[of_cause[segment.cause]] += rest
        elif segment.cause == "dispatch" and length >= SLOW_OPERATOR_NS:
            cost["GD102"] += rest
        elif dry and segment.cause in ("dispatch", "launch", "latency"):
            cost["GD201"] += rest
    return {**cost, "GD302": truth.gpu.pageable_ns}


def _gpu_figures(truth: Truth) -> dict[str, float]:
    gpu = truth.gpu
    pageable = gpu.pageable_ns if gpu.pageable_ns < THRESHOLDS["GD302"] * truth.window_ns else 0
    figures = {
        "GD303": gpu.trip_ns,
        "GD304": gpu.copying_ns + pageable,  # copies that no other rule reports
        "GD501": gpu.fp32_ns,
        "GD502": gpu.unaligned_ns,
        "GD503": gpu.softmax_ns,
        "GD504": gpu.narrow_ns,
        "GD506": gpu.layout_ns,
        "GD508": gpu.tail_ns,
        "GD601": gpu.communicating_ns,
    }
    return {rule: ns / truth.window_ns for rule, ns in figures.items()}


def _uneven(job: Job, truth: Truth) -> float:
    """Return the time beyond that of usual steps, divided by the threshold of uneven steps.

    If most steps are slow, the median says nothing: the fast ones before them are the usual ones."""
    if job.slower_by == 1:
        return unevenness(truth.gpu.step_ns, truth.window_ns)
    usual = statistics.median(truth.gpu.step_ns[:SLOWER_FROM])
    slow = truth.gpu.step_ns[SLOWER_FROM:]
    if 1.1 < statistics.median(slow) / usual < 1.3:
        return THRESHOLDS["GD106"]
    return sum(ns - usual for ns in slow if ns > 1.2 * usual) / truth.window_ns / 0.02


def _first_step(truth: Truth) -> float:
    lengths = truth.gpu.step_ns
    return lengths[0] / statistics.median(lengths[1:]) if len(lengths) > 2 else 0.0
