"""GD401: GPU memory grows from step to step."""

from __future__ import annotations

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import RuleAnswer
from tb_gpudiag.rules.rule import MEMORY_FILES, TRACES, Claimed, Rule
from tb_gpudiag.rules.shared.leak import look_for_leak
from tb_gpudiag.rules.shared.recording_advice import gpu_memory_not_recorded


def check(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    """Check whether the memory floor of a GPU rises from step to step."""
    return look_for_leak(facts.gpu_memory) if facts.gpu_memory else gpu_memory_not_recorded(facts)


RULE = Rule("GD401", "memory_leak", "GPU memory leak", check, about=TRACES | MEMORY_FILES, topic="growth")
