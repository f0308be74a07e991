"""GD901: nothing marks where a step begins and ends."""

from __future__ import annotations

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.rule import NOTHING_CLAIMED, Answer, Claimed, Clear, Evidence, Finding, Rule, Severity
from tb_gpudiag.rules.shared.recording_advice import record_again
from tb_gpudiag.wording.format import count, time_ns


def check(facts: Facts, _claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    if facts.recorded.steps:
        return Clear(f"{count(len(facts.steps), 'step')} recorded")
    inferred = facts.inferred_steps
    steps = len(inferred) if inferred is not None and inferred.are_steps else 0
    return Finding(
        title="No steps are marked" + ("" if steps else ", so nothing can be said per step"),
        summary=(
            "The trace holds no ProfilerStep marks. All figures are over the whole recording, with whatever "
            "came before the first step and after the last one in it."
            + (" What repeats in it is shown as inferred steps." if steps else "")
        ),
        fix=record_again("Give the profiler a schedule, and call prof.step() at the end of every step."),
        evidence=[
            Evidence("steps", f"none; {steps} inferred from the launches" if steps else "none"),
            Evidence("whole recording", time_ns(facts.recording.duration_ns)),
        ],
    )


RULE = Rule("GD901", "no_steps", "No steps recorded", check, severity=Severity.INFO)
