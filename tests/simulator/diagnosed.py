"""Simulated scenarios and their facts, each made once per process."""

from __future__ import annotations

from functools import cache

from tb_gpudiag.facts.facts import Facts
from tests.simulator import Simulated, simulate
from tests.trace.support import read_bytes


@cache
def simulated(name: str) -> Simulated:
    """The scenario of this name, with its usual severity and seed."""
    return simulate(name)


@cache
def simulated_facts(name: str) -> Facts:
    """What the diagnosis knows from the scenario's trace."""
    return Facts(read_bytes(simulated(name).bytes()))
