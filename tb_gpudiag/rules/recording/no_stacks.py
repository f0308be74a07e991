"""GD903: no Python stacks, so no source lines."""

from __future__ import annotations

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.rule import NOTHING_CLAIMED, Answer, Claimed, Clear, Evidence, Finding, Rule, Severity
from tb_gpudiag.rules.shared.recording_advice import record_again


def check(facts: Facts, _claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    if facts.recorded.stacks:
        return Clear("Python stacks are recorded")
    return Finding(
        title="No Python stacks are recorded: findings name operators, not source lines",
        summary=(
            "Without stacks a finding can say which operator cost the time, and not which line of yours "
            "called it. Time in plain Python between operators cannot be told apart."
        ),
        fix=record_again(
            "Record with with_stack=True. It slows the recorded steps down and makes the file larger."
        ),
        evidence=[Evidence("Python stacks", "none")],
    )


RULE = Rule("GD903", "no_stacks", "No stacks recorded", check, severity=Severity.INFO)
