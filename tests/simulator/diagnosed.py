"""Simulated scenarios and their facts, each made once per process."""

from __future__ import annotations

from functools import cache

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.build import build_essentials
from tb_gpudiag.trace.files.file_names import TraceFile
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


@cache
def simulated_report(name: str) -> pb.Report:
    """What the diagnosis says of the scenario. Do not change it."""
    return build_essentials(simulated_facts(name), TraceFile(name, ".", name, "", 0, 0, name))
