"""GD905: the trace contains no GPU activity."""

from __future__ import annotations

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.rule import Claimed, Clear, Evidence, Finding, Fix, Rule, RuleAnswer, Severity
from tb_gpudiag.rules.shared.recording_advice import record_again
from tb_gpudiag.vocabulary.api_calls import LAUNCH_CALL
from tb_gpudiag.wording.quantity import number


def check(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    """Check for GPU work, and without any, for launch calls that the job made anyway."""
    if facts.device is not None:
        work = number(len(facts.work), "kernel, copy or memset", "kernels, copies and memsets")
        return Clear(f"{work} recorded")
    if facts.recorded.unread_accelerator:
        return _unread(facts.recorded.unread_accelerator)
    launches = sum(calls for _, calls in facts.calls.count_by_name(LAUNCH_CALL))
    evidence = [Evidence("Kernels and copies", number(0)), Evidence("Launch calls", number(launches))]
    if launches:
        return Finding(
            title="Kernels were launched, but no GPU activity was recorded",
            summary=(
                "The host launched GPU work, but the trace contains none of it: the profiler could not trace "
                "the GPU. This file does not show how busy the GPU was, or why it was idle."
            ),
            fix=record_again(
                "Record with ProfilerActivity.CUDA, use one GPU profiler at a time (no Nsight, no DCGM "
                "profiling), and check that the driver lets this user trace the GPU."
            ),
            evidence=evidence,
            severity=Severity.WARNING,
        )
    return Finding(
        title="No GPU activity was recorded: the diagnosis is about the host",
        summary=(
            "The trace contains no kernels, copies or launches. Either the job ran on the CPU, or the "
            "profiler did not record GPU activity."
        ),
        fix=record_again("If the job uses a GPU, record with ProfilerActivity.CUDA."),
        evidence=evidence,
    )


def _unread(accelerator: str) -> Finding:
    return Finding(
        title=f"Activity of {accelerator} is not read",
        summary=(
            f"The trace contains activity of {accelerator}. It is not read, so this report does not say how "
            "busy the accelerator was, or why it was idle."
        ),
        fix=Fix("Use the accelerator's own profiling tools for its activity."),
        evidence=[Evidence("Kernels and copies of a GPU", number(0))],
    )


RULE = Rule("GD905", "no_gpu", "No GPU activity recorded", check, severity=Severity.INFO)
