"""GD405: host memory grows from step to step."""

from __future__ import annotations

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import RuleAnswer
from tb_gpudiag.rules.rule import TRACES, Claimed, Rule
from tb_gpudiag.rules.shared.leak import look_for_leak
from tb_gpudiag.rules.shared.recording_advice import memory_not_recorded


def check(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    """Check whether the floor of the memory that PyTorch allocates on the CPU rises from step to step."""
    of_cpu = [memory for memory in facts.memory if memory.is_cpu]
    return look_for_leak(of_cpu) if of_cpu else memory_not_recorded(facts.recorded)


RULE = Rule(
    "GD405", "host_memory_leak", "Host memory leak", check, about=TRACES | {"memory_timeline"}, topic="growth"
)
