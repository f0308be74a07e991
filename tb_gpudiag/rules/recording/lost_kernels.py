"""GD910: launches whose kernels the tracer lost."""

from __future__ import annotations

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import Clear, Evidence, Finding, RuleAnswer, Severity
from tb_gpudiag.rules.rule import Claimed, GpuRule
from tb_gpudiag.rules.shared.lost_time import longest
from tb_gpudiag.rules.shared.odd_recordings import (
    LEAST_LAUNCHES,
    SPOILS_SHARE,
    lost_ns,
    lost_share,
    lost_title,
)
from tb_gpudiag.rules.shared.recording_advice import record_again
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.format import time_ns
from tb_gpudiag.wording.quantity import duration, share_of


def check(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    """Measure the time in which kernels may have run whose launches are in the trace."""
    lost, launches = len(facts.lost_work.lost), len(facts.lost_work.launches)
    found = lost_share(facts)
    if not found and lost < max(1, LEAST_LAUNCHES * launches):
        return Clear(f"{share_of(launches - lost, launches, 'of the kernel launches')} have their kernels")
    unrecorded_ns, recorded_ns = lost_ns(facts), facts.recorded_window.duration_ns
    of_recording = share_of(unrecorded_ns, recorded_ns, "of the recording")
    summary = (
        f"The GPU may have been busy for {time_ns(unrecorded_ns)} in which nothing was recorded, although "
        "the host had launched kernels: the tracer lost their records. That time is no idle time with a "
        "cause. Steps at the beginning and end that lack most kernels are left out of the step window."
    )
    if not found:
        summary = (
            "The recorded GPU work leaves no time for them: they were still waiting when the recording ended."
        )
    spoils = found >= SPOILS_SHARE or lost >= levels.HALF * launches
    return Finding(
        title=lost_title(facts),
        summary=summary,
        fix=record_again(
            "Record fewer steps at a time, so that the tracer's buffers do not fill up, and start it before "
            "the steps that you want: one warmup step or more in the schedule."
        )
        if found
        else record_again("Call torch.cuda.synchronize() before the recording ends."),
        evidence=[
            Evidence("Launches without a kernel", share_of(lost, launches, "of the kernel launches")),
            Evidence("Unrecorded time", duration(unrecorded_ns), (of_recording,)),
        ],
        ranges=longest(facts.lost_work.holes, facts.gpu.id),
        severity=Severity.WARNING.when(spoils),
        leads=spoils,
    )


RULE = GpuRule("GD910", "lost_kernels", "Kernels are missing", check, severity=Severity.INFO)
