"""GD905: the trace contains no GPU activity."""

from __future__ import annotations

from collections.abc import Iterator

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.waiting.gpu_use import GpuUse
from tb_gpudiag.rules.answer import Clear, Evidence, Finding, Fix, RuleAnswer, Severity
from tb_gpudiag.rules.rule import Claimed, Rule, page_fixes
from tb_gpudiag.rules.shared.lost_time import lost_time
from tb_gpudiag.rules.shared.odd_recordings import (
    capture_ns,
    gpu_name,
    loading_limits,
    no_gpu_sentence,
    nothing_of_the_job,
)
from tb_gpudiag.rules.shared.recording_advice import record_again, recording_gpu
from tb_gpudiag.wording.format import in_quotes
from tb_gpudiag.wording.quantity import duration, number

FIXES = page_fixes(__name__)

# The page lists the first ones; more say nothing new.
_OPERATORS_SHOWN = 3


def _recorded(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    work = number(len(facts.work), "kernel, copy or memset", "kernels, copies and memsets")
    return Clear(f"{work} recorded")


def _not_recorded(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    """Check for signs that the job used a GPU anyway."""
    if capture_ns(facts):
        return Clear("the recording is of the capture of a graph, in which nothing runs")
    if facts.recorded.unread_accelerator:
        return _unread(facts.recorded.unread_accelerator)
    if not facts.recording.duration_ns or nothing_of_the_job(facts):
        return _EMPTY
    use = facts.gpu_use
    if use.possible:
        lost = lost_time(facts)
        return _unseen(use, leads=not loading_limits(use, lost.share(lost.total_ns(lost.of(Cause.INPUT)))))
    if use.listed:
        return _moved_nothing(facts)
    return Finding(
        title="No GPU activity was recorded: the diagnosis is about the host",
        summary=(
            "The trace contains no kernels, copies or launches, and no other sign of a GPU. As far as it "
            "shows, the job ran on the CPU."
        ),
        fix=record_again("If the job uses a GPU, record with ProfilerActivity.CUDA."),
        evidence=list(_signs(use)),
    )


_EMPTY = Finding(
    title="Nothing of the job was recorded",
    summary="The trace has neither operators nor launches nor GPU activity: the profiler was not active "
    "while the job ran, or the job ran in another process, or on the CPU while only CUDA activity was "
    "recorded.",
    fix=record_again(
        "Start the profiler in the process that trains, run the steps inside its block with both "
        "ProfilerActivity.CPU and ProfilerActivity.CUDA, and call prof.step() often enough that the schedule "
        "reaches its active steps."
    ),
    severity=Severity.WARNING,
    leads=True,
)


def _unseen(use: GpuUse, *, leads: bool) -> Finding:
    """The job used a GPU, or may have used one: nothing is known about what it does."""
    return Finding(
        title=no_gpu_sentence(use).removesuffix("."),
        summary="This file does not show how busy the GPU was, or why it was idle. What the host does may "
        "cost nothing: it may run ahead of the GPU, and its waits are the GPU's work.",
        fix=FIXES["apple"] if use.apple else record_again(recording_gpu(use)),
        evidence=list(_signs(use)),
        severity=Severity.WARNING,
        leads=leads,
    )


def _moved_nothing(facts: Facts) -> Finding:
    use = facts.gpu_use
    shown = (
        "All memory that was recorded is the CPU's, and operators compute on the main thread."
        if facts.recorded.memory
        else "Its operators are those of a CPU."
    )
    return Finding(
        title=f"The job ran on the CPU: nothing was moved to {gpu_name(use)}",
        summary=f"{no_gpu_sentence(use)} {shown} A GPU is usually many times as fast.",
        fix=FIXES["move"],
        evidence=list(_signs(use)),
        severity=Severity.WARNING,
        leads=True,
    )


def _signs(use: GpuUse) -> Iterator[Evidence]:
    yield Evidence("Kernels and copies", number(0))
    yield Evidence("Launch calls", number(use.launches))
    yield from Evidence.some("Memory events of a GPU", number(use.memory_events))
    for name, count in use.operators.most_common(_OPERATORS_SHOWN):
        yield Evidence("Runs on a GPU only", in_quotes(name), (number(count, "call"),))
    yield from Evidence.some("Values read that waited", number(use.waits), duration(use.waits_ns))
    yield from Evidence.some("Copies to another device", number(use.copies))
    yield from Evidence.some("Gradients computed on a device's own thread", number(use.nodes, "node"))


def _unread(accelerator: str) -> Finding:
    return Finding(
        title=f"Activity of {accelerator} is not read",
        summary=(
            f"The trace contains activity of {accelerator}. It is not read, so this report does not say how "
            "busy the accelerator was, or why it was idle."
        ),
        fix=Fix("Use the accelerator's own profiling tools for its activity."),
        evidence=[Evidence("Kernels and copies of a GPU", number(0))],
        leads=True,
    )


RULE = Rule(
    "GD905",
    "no_gpu",
    "No GPU activity recorded",
    _recorded,
    on_cpu=_not_recorded,
    unseen=_not_recorded,
    severity=Severity.INFO,
    topic="part",
)
