"""GD905: the trace holds no GPU activity."""

from __future__ import annotations

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.rule import NOTHING_CLAIMED, Answer, Claimed, Clear, Evidence, Finding, Rule, Severity
from tb_gpudiag.rules.shared.recording_advice import record_again
from tb_gpudiag.trace.vocabulary.api_calls import LAUNCH_CALL
from tb_gpudiag.wording.format import count


def check(facts: Facts, _claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    if facts.device is not None:
        return Clear(f"{count(len(facts.work))} kernels, copies and sets recorded")
    launches = sum(calls for _, calls in facts.calls.count_by_name(LAUNCH_CALL))
    evidence = [Evidence("kernels and copies", "none"), Evidence("launch calls", count(launches))]
    if launches:
        return Finding(
            title="Kernels were launched, but no GPU activity was recorded",
            summary=(
                "The host launched GPU work, and none of it is in the trace: the profiler could not trace "
                "the GPU. How busy the GPU was, and why it was idle, is not knowable from this file."
            ),
            fix=record_again(
                "Record with ProfilerActivity.CUDA, let one profiler at a time use the GPU (no Nsight, no "
                "DCGM profiling), and check that the driver lets this user trace it."
            ),
            evidence=evidence,
            severity=Severity.WARNING,
        )
    return Finding(
        title="No GPU activity was recorded: the diagnosis is about the host",
        summary=(
            "The trace holds no kernel, no copy and no launch. Either the job ran on the CPU, or the "
            "profiler was not asked for GPU activity."
        ),
        fix=record_again("If the job uses a GPU, record with ProfilerActivity.CUDA."),
        evidence=evidence,
    )


RULE = Rule("GD905", "no_gpu", "No GPU activity", check, severity=Severity.INFO)
