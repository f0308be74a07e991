"""GD401: GPU memory grows from step to step."""

from __future__ import annotations

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import RuleAnswer
from tb_gpudiag.rules.rule import GPU_MEMORY, MEMORY_FILES, TRACES, Claimed, Rule
from tb_gpudiag.rules.shared.leak import look_for_leak


def check(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    """Check whether the memory floor of a GPU rises from step to step."""
    return look_for_leak(facts.gpu_memory)


RULE = Rule(
    "GD401",
    "memory_leak",
    "GPU memory leak",
    check,
    about=TRACES | MEMORY_FILES,
    needs=(GPU_MEMORY,),
    topic="growth",
)
