"""GD901: the trace does not mark where a step begins and ends."""

from __future__ import annotations

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import Clear, Evidence, Finding, RuleAnswer, Severity
from tb_gpudiag.rules.rule import Claimed, Rule
from tb_gpudiag.rules.shared.recording_advice import record_again
from tb_gpudiag.wording.quantity import duration, number


def check(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    server, engine = facts.job.server, facts.engine
    if server is not None and engine:
        return Clear(f"{number(len(engine), 'engine step')} of {server.value} recorded")
    if facts.recorded.steps:
        return Clear(f"{number(len(facts.steps), 'step')} recorded")
    inferred = facts.inferred_steps
    steps = len(inferred) if inferred is not None and inferred.are_steps else 0
    if server is not None:
        return Clear(f"{server.value} marks no steps; {number(steps, 'step')} inferred from launches")
    lacks = ", so there are no figures per step"
    over = (
        "All figures are over the whole recording, including whatever came before the first step and after "
        "the last one."
    )
    if steps:
        lacks = ""
        over = "Its launches repeat: the figures are over these inferred steps. Marks are more reliable."
    return Finding(
        title=f"No steps are marked{lacks}",
        summary=f"The trace contains no ProfilerStep marks. {over}",
        fix=record_again("Give the profiler a schedule, and call prof.step() at the end of each step."),
        evidence=[
            Evidence("Marked steps", number(0)),
            *Evidence.some("Steps inferred from launches", number(steps)),
            Evidence("Recording", duration(facts.recording.duration_ns)),
        ],
    )


RULE = Rule("GD901", "no_steps", "No steps recorded", check, severity=Severity.INFO, topic="part")
