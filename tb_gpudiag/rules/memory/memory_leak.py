"""GD401: a GPU's memory rises from step to step."""

from __future__ import annotations

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.rule import MEMORY_FILES, NO_GPU, NOTHING_CLAIMED, TRACES, Answer, Claimed, Rule
from tb_gpudiag.rules.shared.leak import look_for_leak
from tb_gpudiag.rules.shared.recording_advice import memory_not_recorded


def check(facts: Facts, _claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    """The floor of each GPU's memory, step by step."""
    of_gpus = [memory for memory in facts.memory if not memory.is_cpu]
    if not of_gpus:
        return memory_not_recorded(facts) if facts.device is not None else NO_GPU
    return look_for_leak(facts, of_gpus)


RULE = Rule("GD401", "memory_leak", "Memory that is not given back", check, about=TRACES | MEMORY_FILES)
