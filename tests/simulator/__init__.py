"""A small discrete-event GPU simulator that writes Kineto's JSON and knows the faults it planted.

    from tests.simulator import simulate

    run = simulate("input_pipeline", severity=1.0, seed=0)
    path = run.write(tmp_path / "input_pipeline")     # or run.bytes()
    run.truth.idle_ns["input"]                        # ns over the step window
    run.truth.steps[2].busy_ns
    run.truth.memory[0].slope_bytes           # of the GPU, per step

`scenarios()` lists them, each fault next to its fix; `simulate(Job(...))` runs any other job.
`python -m tests.simulator OUTDIR` writes one run folder per scenario. Every trace says `"simulated": true`.
"""

from __future__ import annotations

from tests.simulator.job import Job
from tests.simulator.machine import Costs, Machine, Without
from tests.simulator.memory_truth import MemoryTruth
from tests.simulator.scenarios import FAULTS, Fault, Scenario, Simulated, scenarios, simulate
from tests.simulator.training import Training
from tests.simulator.truth import StepTruth, Truth, find_truth

__all__ = [
    "FAULTS",
    "Costs",
    "Fault",
    "Job",
    "Machine",
    "MemoryTruth",
    "Scenario",
    "Simulated",
    "StepTruth",
    "Training",
    "Truth",
    "Without",
    "find_truth",
    "scenarios",
    "simulate",
]
