"""GD405: the host's memory rises from step to step."""

from __future__ import annotations

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.rule import NOTHING_CLAIMED, Answer, Claimed, Rule
from tb_gpudiag.rules.shared.leak import look_for_leak
from tb_gpudiag.rules.shared.recording_advice import memory_not_recorded


def check(facts: Facts, _claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    """The floor of what PyTorch allocates for tensors on the CPU, step by step."""
    of_cpu = [memory for memory in facts.memory if memory.is_cpu]
    return look_for_leak(facts, of_cpu) if of_cpu else memory_not_recorded(facts)


RULE = Rule("GD405", "host_memory_leak", "Host memory that is not given back", check)
