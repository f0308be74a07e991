"""GD903: the trace contains no Python stacks, so findings name no functions."""

from __future__ import annotations

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import Clear, Evidence, Finding, RuleAnswer, Severity
from tb_gpudiag.rules.rule import Claimed, Rule
from tb_gpudiag.rules.shared.recording_advice import record_again


def check(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    if facts.recorded.stacks:
        return Clear("Python stacks are recorded")
    return Finding(
        title="No Python stacks are recorded: findings name operators, not functions",
        summary=(
            "Without stacks a finding names the operator that took the time, but not the function of your "
            "code that called it. Time in plain Python between operators has no name at all."
        ),
        fix=record_again(
            "Record two or three steps with with_stack=True. That slows them down, up to 4× if they run "
            "much Python: keep this recording for the figures."
        ),
        evidence=[Evidence("Python stacks", "not recorded")],
    )


RULE = Rule("GD903", "no_stacks", "No stacks recorded", check, severity=Severity.INFO, topic="part")
